"""A counter, and one who counts with it until somebody stops the program."""

import launchpad as lp
from absl import app


class Counter:
    """Counts on."""

    def __init__(self):
        self._count = 0

    def next(self):
        self._count += 1
        return self._count


# part: ticker
def tick(counter):
    while not lp.wait_for_stop(1):
        print(counter.next(), flush=True)


# end


def make_program():
    program = lp.Program("counting")
    counter = program.add_node(lp.CourierNode(Counter), label="counter")
    program.add_node(lp.PyNode(tick, counter), label="ticker")
    return program


def main(_):
    lp.launch(make_program())


if __name__ == "__main__":
    app.run(main)
