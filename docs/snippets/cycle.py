"""Two nodes that hold each other's handles."""

import launchpad as lp


class Player:
    def __init__(self, other: "lp.CourierClient[Player]"):
        self.other = other

    def volley(self, n: int) -> int:
        return 0 if n == 0 else 1 + self.other.volley(n - 1)


def referee(player):
    print(player.volley(10), "strokes, there and back")


# part: program
left = lp.CourierNode(Player)
right = lp.CourierNode(Player)
left.configure(right.create_handle())
right.configure(left.create_handle())

program = lp.Program("cycle")
player = program.add_node(left, label="left")
program.add_node(right, label="right")
program.add_node(lp.PyNode(referee, player), label="referee")
lp.launch(program)
# end
