"""Workers of a group that wait for each other, and serve until all are done."""

import launchpad as lp


# part: rank
class Rank:
    def __init__(self, *others: lp.CourierClient["Rank"]) -> None:
        self.others = others
        self.share = 0

    def run(self) -> int:
        self.share = 10 ** lp.current().replica_index
        lp.barrier("computed", timeout_s=60)  # now all have one
        return self.share + sum(other.get() for other in self.others)

    def get(self) -> int:
        return self.share


# part: program
ranks = [lp.CourierNode(Rank) for _ in range(3)]
for rank in ranks:
    rank.configure(*(other.create_handle() for other in ranks if other is not rank))

program = lp.Program("ranks")
with program.group("rank", serves_until="group"):
    for rank in ranks:
        program.add_node(rank)
print(lp.run(program)["rank"])
# end
