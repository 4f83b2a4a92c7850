"""A buffer and the one that empties it, in one worker; others outside fill it."""

import queue

import launchpad as lp


class Buffer:
    def __init__(self):
        self.items = queue.Queue()

    def put(self, item: int) -> None:
        self.items.put(item)

    def take(self) -> int:
        return self.items.get()  # a served method may wait


def empty(buffer, count):
    items = sorted(buffer.take() for _ in range(count))
    print(items, "in", lp.current().name)


def fill(buffer, item):
    buffer.put(item)


# part: program
buffer = lp.CourierNode(Buffer)
handle = buffer.create_handle()  # of the node inside, not of the colocation
sink = lp.MultiThreadingColocation([buffer, lp.PyNode(empty, handle, 3)])

program = lp.Program("colocation")
program.add_node(sink, label="sink")
with program.group("source"):
    for item in range(3):
        program.add_node(lp.PyNode(fill, handle, item))
lp.launch(program)
# end
