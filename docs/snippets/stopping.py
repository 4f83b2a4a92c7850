"""Two ways to notice the stop, and one that does not need to."""

import time

import launchpad as lp


# part: ways
class AsksNow:
    """A worker that checks the event when it likes, and ends by itself."""

    def run(self):
        while not lp.stop_event().is_set():
            time.sleep(0.01)
        print("asked, saved, done")


class IsTold:
    """A worker with something to close. Launchpad calls the handler in a thread of its own."""

    def run(self):
        lp.register_stop_handler(lambda: print("told"))
        lp.wait_for_stop()


class NeverAsks:
    """An endless loop. `lp.Stopped` is raised in it; `finally` runs."""

    def run(self):
        try:
            while True:
                time.sleep(0.01)
        finally:
            print("interrupted")


def finish():
    time.sleep(0.2)
    lp.stop()  # the whole program, and well: exit code 0


# part: program
program = lp.Program("stopping")
for label, constructor in {"asks": AsksNow, "told": IsTold, "never": NeverAsks}.items():
    program.add_node(lp.PyClassNode(constructor), label=label)
program.add_node(lp.PyNode(finish), label="finisher")
lp.launch(program)
# end
