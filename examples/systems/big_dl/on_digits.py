"""The problem by which these systems are compared."""

from collections.abc import Callable

from examples._shared.problem import Learned, Problem
from examples.systems.big_dl.algorithm import FORWARD_BACKWARD, SYNCHRONIZATION, Task
from examples.systems.big_dl.program import fit


def train(problem: Problem, is_disturbed: bool) -> Learned:
    """Train with an executor for each slice. Half-way, an executor may die in each of the two jobs.

    Raises:
        RuntimeError: Two executors should have died, and did not.
    """
    half = problem.steps // 2
    deadly = [Task(FORWARD_BACKWARD, half, executor=0), Task(SYNCHRONIZATION, half, executor=1)]
    trained, edges = fit(problem, problem.workers, group=8, deadly=deadly if is_disturbed else ())
    if is_disturbed and trained.attempts[:2] != [2, 2]:
        raise RuntimeError(f"two executors were to be killed, and all ended in {trained.attempts}")
    return Learned(trained.parameters, staleness=0, edges=edges)


METHODS: dict[str, Callable[[Problem, bool], Learned]] = {"big_dl": train}
