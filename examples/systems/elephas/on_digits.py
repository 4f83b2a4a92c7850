"""The modes of Elephas on the problem that all systems share."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from examples._shared.data import Array
from examples._shared.problem import Learned, Problem
from examples.systems.elephas.algorithm import Model
from examples.systems.elephas.claims import attempts
from examples.systems.elephas.program import fit
from examples.systems.elephas.worker import Faults


@dataclass(frozen=True)
class Slices:
    """The partition of a worker: its slices of the problem's batches. Eight batches are an epoch."""

    problem: Problem
    worker: int
    n_batches: int = 8

    def gradient(self, model: Model, parameters: Array, step: int) -> Array:
        return self.problem.gradient(parameters, step, self.worker)


def learn(mode: str, frequency: str, problem: Problem, is_disturbed: bool) -> Learned:
    """Train in this mode. Raise RuntimeError if a worker and the driver should have died, and did not."""
    model = Model(problem.widths, problem.first_parameters, problem.learning_rate)
    slices = [Slices(problem, worker) for worker in range(problem.workers)]
    faults = Faults(kills=is_disturbed)
    result = fit([model], slices, problem.steps, frequency, mode=mode, faults=faults)
    (fitted,) = result.fitted
    if is_disturbed and min(attempts(result)) == 1:
        raise RuntimeError(
            "a worker and the driver were to be killed once each, and have ended in attempts"
            f" {attempts(result)}"
        )
    return Learned(fitted.weights.parameters, fitted.staleness, result.edges)


METHODS: dict[str, Callable[[Problem, bool], Learned]] = {
    "elephas, synchronous": partial(learn, "synchronous", "epoch"),
    "elephas, asynchronous": partial(learn, "asynchronous", "batch"),
    "elephas, hogwild": partial(learn, "hogwild", "batch"),
}
