"""A worker that goes on where it was: after a failure, and in the next launch."""

import tempfile

import launchpad as lp


# part: trainer
class Trainer:
    def __init__(self, steps: int) -> None:
        self.steps = steps

    def run(self) -> int:
        me = lp.current()
        step, weights = me.load(default=(0, [0.0, 0.0]))
        print("begins at step", step)
        while step < self.steps:
            step += 1
            weights = [weight + 0.5 for weight in weights]
            me.save((step, weights))
            if step == 3 and me.attempt == 1:
                raise RuntimeError("the machine has a bad day")
        return step


# part: program
def make_program(steps: int) -> lp.Program:
    program = lp.Program("training")
    with program.group("trainer", restart=lp.RestartPolicy(max_restarts=3)):
        program.add_node(lp.PyClassNode(Trainer, steps))
    return program


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:  # yours would stay: state="runs/exp1"
        for steps in (5, 8):
            print("steps done:", lp.run(make_program(steps), state=folder)["trainer"])
# end
