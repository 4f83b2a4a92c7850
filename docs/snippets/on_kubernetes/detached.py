"""A script that leaves a program on a Kubernetes cluster."""

import launchpad as lp
from counting import make_program

# part: detach
detached = lp.launch(make_program(), "kubernetes", detach=True)
print(detached.run_id)  # the script may end now; the program does not
# end
