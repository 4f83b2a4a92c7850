"""A script that leaves a program on a Ray cluster, looks at it, and stops it."""

import launchpad as lp


def work():
    print("working …", flush=True)
    lp.wait_for_stop()


program = lp.Program("nightly")
program.add_node(lp.PyNode(work), label="worker")
# part: detach
detached = lp.launch(program, "ray", detach=True)
print(detached.run_id)  # the script may end now; the program does not
# end
detached.stop()
print([row.state for row in detached.status()])
