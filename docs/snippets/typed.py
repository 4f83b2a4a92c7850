"""A client is typed as the class that it calls."""

import launchpad as lp


class Learner:
    def step(self, batch: list[float]) -> float:
        return sum(batch) / len(batch)


# part: client
class Actor:
    def __init__(self, learner: lp.CourierClient[Learner]) -> None:
        self.learner = learner

    def run(self) -> None:
        loss = self.learner.step([1.0, 2.0])  # a float, says a checker; .stepp is an error
        futures = [lp.submit(self.learner.step, [loss, x]) for x in (0.5, 1.5)]  # do not wait
        print([future.result() for future in futures])


# part: test
Actor(Learner()).run()  # in a test the object itself can stand in for its client


# part: program
program = lp.Program("typed")
learner = program.add_node(lp.CourierNode(Learner), label="learner")  # a CourierHandle[Learner]
program.add_node(lp.PyClassNode(Actor, learner), label="actor")
lp.launch(program)
# end
