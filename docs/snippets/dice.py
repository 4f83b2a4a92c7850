"""Three players roll dice; one table holds their points."""

import random

import launchpad as lp


# part: classes
class Table:
    def __init__(self):
        self.points = {}

    def write(self, player: str, points: int) -> None:
        self.points[player] = points

    def read(self) -> dict[str, int]:
        return dict(self.points)


class Player:
    def __init__(self, table: lp.CourierClient[Table], rolls: int):
        self.table = table
        self.rolls = rolls

    def run(self):
        me = lp.current()
        dice = random.Random(me.seed)
        points = sum(dice.randint(1, 6) for _ in range(self.rolls))
        self.table.write(me.name, points)
        print(f"player {me.replica_index + 1} of {me.num_replicas} has {points} points")


# part: program
def make_program(players: int = 3, rolls: int = 10) -> lp.Program:
    program = lp.Program("dice")
    table = program.add_node(lp.CourierNode(Table), label="table")
    program.add_node(lp.PyClassNode(Player, table, rolls=rolls), label="player", replicas=players)
    return program


if __name__ == "__main__":
    lp.launch(make_program())
# end
