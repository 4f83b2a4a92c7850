"""A program that hangs."""

import threading

import launchpad as lp


class Counter:
    def __init__(self):
        self.lock = threading.Lock()
        self.count = 0

    def increment(self) -> int:
        with self.lock:
            self.count += 1
            return self.get_count()

    def get_count(self) -> int:
        with self.lock:  # which increment() holds
            return self.count


def train(counter):
    for _ in range(3):
        print("step", counter.increment())


program = lp.Program("hanging")
counter = program.add_node(lp.CourierNode(Counter), label="counter")
program.add_node(lp.PyNode(train, counter), label="trainer")
if __name__ == "__main__":
    lp.launch(program)
