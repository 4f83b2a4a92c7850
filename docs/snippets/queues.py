"""Producers and consumers with a queue between them."""

import launchpad as lp

Row = tuple[str, int]


# part: workers
def read(rows: lp.Queue[Row], shard: str) -> None:
    with rows.producer():  # closes it for this worker at the end
        for number in range(1000):
            rows.put((shard, number))


def train(rows: lp.Queue[Row]) -> int:
    return sum(number for _, number in rows)  # until all producers have closed


# part: program
program = lp.Program("rows")
rows = program.add_node(lp.QueueNode[Row](maxsize=100, producers=3), label="rows")
with program.group("reader"):
    for shard in ("a", "b", "c"):
        program.add_node(lp.PyNode(read, rows, shard))
program.add_node(lp.PyNode(train, rows), label="trainer", replicas=2)
print(sum(lp.run(program)["trainer"]))
# end
