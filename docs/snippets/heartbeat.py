"""A worker that hangs is noticed, and started again."""

import threading

import launchpad as lp


# part: work
def work(steps: int) -> str:
    for step in range(steps):
        lp.heartbeat()  # this step is done
        if step == 5 and lp.current().attempt == 1:
            threading.Event().wait()  # forever
    return f"done in attempt {lp.current().attempt}"


# part: program
program = lp.Program("hangs")
with program.group("worker", restart=lp.RestartPolicy(heartbeat_s=2)):
    program.add_node(lp.PyNode(work, 10))
print(lp.run(program)["worker"])
# end
