"""GPipe: the cut of a network into stages, and the values that a stage computes and keeps."""

import functools
from collections.abc import Sequence

import numpy as np

from examples._shared.data import Array, Data
from examples._shared.problem import Problem


def cut(costs: Sequence[float], stages: int) -> tuple[int, ...]:
    """Return where each stage begins, and the end. The cut is the one whose stages' costs vary least.

    The mean of the costs is the same for every cut. So their variance is least where the sum of squares is.
    """
    if not 1 <= stages <= len(costs):
        raise ValueError(f"{len(costs)} layers make 1 to {len(costs)} stages, not {stages}")

    @functools.cache
    def best(end: int, stages: int) -> tuple[float, tuple[int, ...]]:
        """Return the least sum of squares of the layers before `end`, and where they are cut."""
        if stages == 1:
            return sum(costs[:end]) ** 2, (0, end)
        cuts = []
        for begin in range(stages - 1, end):
            squares, bounds = best(begin, stages - 1)
            cuts.append((squares + sum(costs[begin:end]) ** 2, (*bounds, end)))
        return min(cuts)

    return best(len(costs), stages)[1]


def schedule(micro_batches: int) -> list[tuple[str, int]]:
    """Return the passes of a stage, in order: all micro-batches forward, then all of them back."""
    forward = [("forward", number) for number in range(micro_batches)]
    return forward + [("backward", number) for _, number in reversed(forward)]


class Layers:
    """A stage's layers, for one batch. Micro-batches go forward and come back in any order.

    Only inputs are kept. The rest is computed again on the way back.

    Args:
        problem: The problem, with a network that has only these layers.
        parameters: The parameters of the layers, in one flat vector.
    """

    def __init__(self, problem: Problem, parameters: Array) -> None:
        self._problem = problem
        self._parameters = parameters
        self._kept: dict[int, list[Array]] = {}
        self.gradient = np.zeros_like(parameters)  # summed over micro-batches, like the loss
        self.loss = 0.0
        self.peak = 0  # the most elements that were kept at once

    def forward(self, number: int, inputs: Array) -> Array:
        """Return the outputs for a micro-batch, and keep the inputs for `backward`."""
        outputs = self._compute(number, inputs)[-1]
        self._kept[number] = [inputs]
        return outputs

    def backward(self, number: int, received: Array | Data) -> Array:
        """Return the gradient by the inputs, from the gradient by the outputs, or from the targets."""
        values = self._compute(number, self._kept[number][0])
        if isinstance(received, Data):
            loss, received = self._problem.loss_function(values[-1], received)
            self.loss += loss
        network = self._problem.network
        by_inputs, by_parameters = network.backward(self._parameters, values, received)
        self.gradient += by_parameters
        del self._kept[number]
        return by_inputs

    def _compute(self, number: int, inputs: Array) -> list[Array]:
        values = self._problem.network.forward(self._parameters, inputs)
        self._kept[number] = values
        n_kept = sum(array.size for values_of_one in self._kept.values() for array in values_of_one)
        self.peak = max(self.peak, n_kept)
        return values
