"""Run it: python -m examples.determined --lp_launch_type=local_mp."""

from absl import app

import launchpad as lp
from examples._shared import digits
from examples._shared.checks import done
from examples.determined.master import Experiment
from examples.determined.program import Agent, make_program
from examples.determined.user import Submission


def main(_: list[str]) -> None:
    """Search, while agents and the master are killed, and check what has come of it."""
    training, held_out = digits.load()
    data = training[slice(512)], held_out
    submissions = [
        Submission(Experiment("asha", "asha", {"trials": 40, "rungs": (1, 3, 9, 27), "seed": 1})),
        Submission(Experiment("random", "random", {"trials": 4, "epochs": 9}, pool="gpu")),
        Submission(
            Experiment("pbt", "pbt", {"members": 4, "rounds": 4, "epochs": 3}, pool="gpu", priority=20)
        ),
        Submission(
            Experiment(
                "grid",
                "grid",
                {"values": {"rate": [0.1, 0.3], "decay": [0.0, 0.001]}, "epochs": 6},
                slots=3,
                priority=10,
            ),
            after=12,
        ),
    ]
    agents = [
        Agent(dies_at={1: 12, 2: 8}),
        Agent(dies_at={1: 20}),
        Agent(pool="gpu", dies_at={1: 10}),
    ]
    program = make_program(data, submissions, agents, {1: 10, 2: 30, 3: 60})
    running = lp.launch(program)
    (found,) = running.results("user")
    attempts = running.results("agent")
    running.wait()
    print(attempts, found.history.attempt)
    print(found.history)
    print(len(found.seen))
    done()


if __name__ == "__main__":
    app.run(main)
