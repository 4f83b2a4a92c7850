"""Run it: python -m examples.systems.determined --lp_launch_type=local_mp."""

from pathlib import Path

from absl import app, flags

import launchpad as lp
from examples._shared import digits
from examples._shared.checks import QUICK, done
from examples.systems.determined import claims
from examples.systems.determined.agent import Kill
from examples.systems.determined.experiment import Experiment
from examples.systems.determined.program import Agent, make_program, pools_of
from examples.systems.determined.user import Submission

PAGE = flags.DEFINE_string("page", "", "File for the page of trials, as it is at the end.")
PORT = flags.DEFINE_integer("port", 0, "Where the master shows that page; 0: at a free port.")

MASTER_DIES_AT = {1: 10, 2: 30, 3: 60}
AGENTS = [
    Agent(kills={1: Kill(epoch=5), 2: Kill(epoch=2, ranks=4)}),
    Agent(kills={1: Kill(epoch=9, ranks=4)}),
    Agent(slots=1, pool="gpu", kills={1: Kill(epoch=10)}),
]


def main(_: list[str]) -> None:
    """Search, while agents and the master are killed, and check what has come of it."""
    training, held_out = digits.load()
    data = training[slice(256)], held_out
    rungs = (1, 3, 9, 27) if QUICK.value else (1, 3, 9, 27, 81)
    asha = Experiment("asha", "asha", {"trials": 40, "rungs": rungs, "seed": 8})
    random = Experiment("random", "random", {"trials": 4, "epochs": 9}, pool="gpu")
    pbt = Experiment(
        "pbt", "pbt", {"members": 4, "rounds": 4, "epochs": 3}, pool="gpu", priority=20
    )
    points = {"rate": [0.1, 0.3], "decay": [0, 0.001]}
    grid = Experiment("grid", "grid", {"values": points, "epochs": 6}, slots=4, priority=10)
    submissions = [Submission(asha), Submission(random), Submission(pbt, 3), Submission(grid, 9)]

    program = make_program(data, submissions, AGENTS, MASTER_DIES_AT, PORT.value)
    running = lp.launch(program, preload=["numpy"])
    (findings,) = running.results("user")
    attempts = [attempt for of_agent in running.results("agent") for attempt in of_agent]
    running.wait()
    expected = [1 + (0 if k else len(agent.kills)) for agent in AGENTS for k in range(agent.slots)]
    history = findings.history
    curves = claims.curves_alone(history, data, asha)
    everything = [submission.experiment for submission in submissions]
    claims.check_asha(history, asha)
    claims.check_bits(history, curves, attempts, expected)
    claims.check_restarts(history, len(MASTER_DIES_AT))
    claims.check_preempted(history, curves, findings.seen)
    claims.check_allocations(history, everything, pools_of(AGENTS))
    claims.check_slots(findings.seen, history, sum(attempts) - len(attempts))
    claims.check_page(findings.page, history)
    claims.check_budget(history, asha, curves, 0.3)
    if PAGE.value:
        Path(PAGE.value).write_text(findings.page)
    done()


if __name__ == "__main__":
    app.run(main)
