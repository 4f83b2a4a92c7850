"""BytePS on the problem that all systems share."""

from collections.abc import Callable

import launchpad as lp
from examples._shared.problem import Learned, Problem
from examples.systems.byteps.program import make_program


def train(problem: Problem, is_killed: bool) -> Learned:
    """Train with half as many spare machines as workers. The first of them may be killed half-way."""
    kill_at = problem.steps // 2 if is_killed else None
    running = lp.launch(make_program(problem, max(problem.workers // 2, 1), kill_at=kill_at))
    running.wait()
    parameters = running.results("worker")[0][1].parameters
    return Learned(parameters, staleness=0, edges=running.edges())


METHODS: dict[str, Callable[[Problem, bool], Learned]] = {"byteps": train}
