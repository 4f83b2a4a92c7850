"""Three tables, each with a share of the keys, and one who uses them as if they were one."""

import launchpad as lp


class Table:
    def __init__(self, number: int) -> None:
        self._number = number
        self._rows: dict[str, int] = {}

    def put(self, key: str, value: int) -> int:
        self._rows[key] = value
        return self._number

    def get(self, key: str) -> int:
        return self._rows[key]

    def size(self) -> int:
        return len(self._rows)

    def load(self, path: str) -> None:
        if self._number > 0:
            raise FileNotFoundError(f"table {self._number} has no {path}")


# part: groups
def use(tables: list[lp.CourierClient[Table]]) -> None:
    shards = lp.shard_by(tables, key=lambda key, *values: key)
    print("put in tables", [shards.put(f"user-{i}", i) for i in range(6)])
    print("found again:", [shards.get(f"user-{i}") for i in range(6)])

    everyone = lp.broadcast(tables)
    print("sizes:", everyone.size())  # asked side by side
    try:
        everyone.load("checkpoint")
    except FileNotFoundError as error:
        print("caught:", error)
        print(error.__notes__[0].splitlines()[0])

    anyone = lp.round_robin(tables)
    print("in turn:", [anyone.size() for _ in range(4)])


# part: program
program = lp.Program("tables")
with program.group("table"):
    tables = [program.add_node(lp.CourierNode(Table, i)) for i in range(3)]
program.add_node(lp.PyNode(use, tables), label="user")
lp.launch(program)
# end
