"""Horovod on the problem that all systems share."""

from collections.abc import Callable

import launchpad as lp
from examples._shared.problem import Learned, Problem
from examples.systems.horovod.program import make_program
from examples.systems.horovod.rank import Options


def learn(problem: Problem, is_killed: bool) -> Learned:
    """Train with a rank for each slice. One may be killed half-way; raise RuntimeError if it was not."""
    kill_at = problem.steps // 2 if is_killed else None
    running = lp.launch(make_program(problem, Options(momentum=0), kill_at))
    trained = running.results("rank")[0]
    running.wait()
    if is_killed and trained.generation == 1:
        raise RuntimeError("a rank was to be killed, and all ended in generation 1")
    return Learned(trained.parameters, staleness=0, edges=running.edges())


METHODS: dict[str, Callable[[Problem, bool], Learned]] = {"horovod": learn}
