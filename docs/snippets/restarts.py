"""A server that fails now and then, is started again, and goes on where it was."""

import os

import launchpad as lp


# part: server
class Counter:
    """A counter that crashes at four and at seven."""

    def __init__(self):
        self._count = lp.current().load(default=0)

    def add(self) -> int:
        self._count += 1
        lp.current().save(self._count)
        if self._count in (4, 7):
            os._exit(1)  # what a crash does: no report, no clean-up
        return self._count


# part: caller
def count_to_ten(counter):
    while True:
        try:
            count = counter.add()
        except lp.courier.OutcomeUnknown:
            print("the call was cut off; it may have counted, or not")
            continue
        if count >= 10:
            return


# part: program
program = lp.Program("restarts")
with program.group("counter", restart=lp.RestartPolicy(max_restarts=5, within_s=60)):
    counter = program.add_node(lp.CourierNode(Counter))
program.add_node(lp.PyNode(count_to_ten, counter), label="caller")
lp.launch(program, launch_type="local_mp")
