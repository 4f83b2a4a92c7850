"""Leaves a program on a Kubernetes cluster."""

import launchpad as lp
from absl import app
from counting import make_program


def main(_):
    # part: detach
    detached = lp.launch(make_program(), "kubernetes", detach=True)
    print(detached.run_id)  # the script may end now; the program does not
    # end


if __name__ == "__main__":
    app.run(main)
