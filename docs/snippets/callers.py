"""A server that knows who calls."""

import launchpad as lp


# part: desk
class Desk:
    """Each worker may hold one seat; the seat of one that has died is free again."""

    def __init__(self, seats: int) -> None:
        self.seats: list[lp.Caller | None] = [None] * seats

    def sit(self) -> int:
        caller = lp.caller()
        for number, holder in enumerate(self.seats):
            if holder is None or holder.is_gone or holder.worker == caller.worker:
                self.seats[number] = caller
                return number
        raise LookupError(f"no seat is free for {caller.worker} (attempt {caller.attempt})")


# part: program
def visit(desk: lp.CourierClient[Desk]) -> int:
    return desk.sit() + desk.sit()  # the same seat twice


program = lp.Program("desk")
desk = program.add_node(lp.CourierNode(Desk, seats=1), label="desk")
program.add_node(lp.PyNode(visit, desk), label="visitor")
print(lp.run(program)["visitor"])
# end
