"""The modes of Elephas on the problem that all systems share."""

from functools import partial

from examples._shared.problem import Learned, Problem
from examples.systems.elephas.claims import attempts
from examples.systems.elephas.program import fit


def learn(mode: str, every: int, problem: Problem, is_disturbed: bool) -> Learned:
    """Train in this mode. Raise RuntimeError if a worker and the driver should have died, and did not."""
    slices = [partial(problem.gradient, worker=worker) for worker in range(problem.workers)]
    result = fit(problem, mode, every, slices, dies=is_disturbed)
    if is_disturbed and min(attempts(result)) == 1:
        raise RuntimeError(f"a worker and the driver were to be killed: {attempts(result)}")
    return Learned(result.parameters, result.workers[0].fitted.staleness, result.edges)


METHODS = {
    "elephas, synchronous": partial(learn, "synchronous", 8),
    "elephas, asynchronous": partial(learn, "asynchronous", 1),
    "elephas, hogwild": partial(learn, "hogwild", 1),
}
