"""An order of calls that is recorded, and kept to when the program runs again."""

import tempfile

import launchpad as lp


# part: average
class Average:
    """A moving average: later numbers count more, so their order matters."""

    def __init__(self) -> None:
        self.value = 0.0

    def add(self, number: float) -> float:
        self.value += 0.1 * (number - self.value)
        return self.value


def send(average: lp.CourierClient[Average]) -> float:
    return [average.add(n * (lp.current().replica_index + 1)) for n in range(100)][-1]


# part: program
def make_program(order: lp.edges.Record | lp.edges.Replay) -> lp.Program:
    program = lp.Program("recorded")
    average = program.add_node(lp.CourierNode(Average), label="average")
    program.add_node(lp.PyNode(send, average.through(order)), label="sender", replicas=3)
    return program


with tempfile.TemporaryDirectory() as folder:
    recorded = lp.run(make_program(lp.edges.Record(folder)))["sender"]
    replayed = lp.run(make_program(lp.edges.Replay(folder)))["sender"]
print("the same to the last bit:", recorded == replayed)
# end
