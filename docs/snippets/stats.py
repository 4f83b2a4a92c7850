"""The costs of calls, counted at both ends."""

import launchpad as lp


class Learner:
    def step(self, batch: list[float]) -> float:
        return sum(batch) / len(batch)


# part: actor
class Actor:
    def __init__(self, learner: lp.CourierClient[Learner]) -> None:
        self.learner = learner

    def run(self) -> None:
        for _ in range(100):
            self.learner.step([1.0, 2.0])

        mine = lp.courier.stats(self.learner).methods["step"]  # what this client has counted
        print(mine.calls, "calls,", mine.errors, "errors,", mine.in_flight, "in flight")

        theirs = lp.courier.server_stats(self.learner)  # what the server has, of all its clients
        print(theirs.name, "was called by", *theirs.edges)
        print(theirs.to_prometheus().splitlines()[1])


# part: program
program = lp.Program("stats")
learner = program.add_node(lp.CourierNode(Learner), label="learner")
program.add_node(lp.PyClassNode(Actor, learner), label="actor")
lp.launch(program)
# end
