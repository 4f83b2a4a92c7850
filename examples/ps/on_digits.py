"""The three modes on the problem by which parameter servers are compared."""

from functools import partial

import launchpad as lp
from examples._shared.problem import Learned, Problem
from examples.ps.claims import check_killed
from examples.ps.program import SHARDS, make_program


def train(mode: str, problem: Problem, kill: bool) -> Learned:
    """Train with two shards. If `kill` is true, the first one dies half-way."""
    kill_at = problem.steps // 2 if kill else None
    running = lp.launch(make_program(problem, mode, kill_at=kill_at))
    trained = running.results("worker")[0]
    running.wait()
    if kill:
        check_killed(trained)
    return Learned(trained.parameters, trained.staleness, running.edges())


METHODS = {f"ps, {mode}": partial(train, mode) for mode in SHARDS}
