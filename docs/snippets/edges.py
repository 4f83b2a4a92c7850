"""The calls on each edge of a program."""

import launchpad as lp


class Table:
    def __init__(self) -> None:
        self.rows: dict[str, int] = {}

    def write(self, name: str, value: int) -> None:
        self.rows[name] = value

    def read(self) -> dict[str, int]:
        return self.rows


def play(table: lp.CourierClient[Table], rounds: int) -> int:
    for number in range(rounds):
        table.write(lp.current().name, number)
    return len(table.read())


# part: program
program = lp.Program("edges")
table = program.add_node(lp.CourierNode(Table), label="table")
with program.group("player"):
    program.add_node(lp.PyNode(play, table, 1000))
    program.add_node(lp.PyNode(play, table.through(lp.edges.Delay(0.005)), 20))  # far away

running = lp.launch(program)
running.wait()
edges = running.edges()
print(edges)
writes = edges.total(caller="player", method="write")
print(writes.calls, "writes,", "exactly" if writes.is_exact else "at least")
# end
