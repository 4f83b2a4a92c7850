"""GPipe: the cut of a network into stages, and the values that a stage computes and keeps."""

import functools
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from examples._shared import networks
from examples._shared.data import Array, Data


def costs(widths: networks.Widths) -> list[int]:
    """Return the multiplications of each layer for one image. Its time is proportional to them."""
    return [inputs * outputs for inputs, outputs in pairwise(widths)]


def cut(costs: Sequence[int], stages: int) -> tuple[int, ...]:
    """Return where each stage begins, and the end. The cut is the one whose stages' costs vary least.

    The mean of the costs is the same for every cut. So their variance is least where the sum of squares is.
    """
    if not 1 <= stages <= len(costs):
        raise ValueError(f"{len(costs)} layers make 1 to {len(costs)} stages, not {stages}")

    @functools.cache
    def best(end: int, stages: int) -> tuple[int, tuple[int, ...]]:
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

    Args:
        widths: The number of inputs, then the width of each layer.
        parameters: The parameters of the layers, in one flat vector.
        is_last: True if the last layer gives the scores of the digits.
        rematerializes: If True, only the inputs are kept. The rest is computed again on the way back.
    """

    def __init__(
        self, widths: networks.Widths, parameters: Array, is_last: bool, rematerializes: bool
    ) -> None:
        self._widths = widths
        self._parameters = parameters
        self._is_last = is_last
        self._rematerializes = rematerializes
        self._kept: dict[int, list[Array]] = {}
        self.gradient = np.zeros_like(parameters)  # summed over micro-batches
        self.peak = 0  # the most elements that were kept at once

    def forward(self, number: int, inputs: Array) -> Array:
        """Return the outputs for a micro-batch, and keep the values that `backward` needs."""
        values = self._compute(number, inputs)
        if self._rematerializes:
            self._kept[number] = [inputs]
        return values[-1]

    def backward(self, number: int, received: Array | Data) -> Array:
        """Return the gradient by the inputs, from the gradient by the outputs, or from the digits."""
        values = self._kept[number]
        if self._rematerializes:
            values = self._compute(number, *values)
        if isinstance(received, Data):
            received = networks.cross_entropy(values[-1], received)[1]
        by_inputs, by_parameters = networks.backward(
            self._widths, self._parameters, values, received, self._is_last
        )
        self.gradient += by_parameters
        del self._kept[number]
        return by_inputs

    def _compute(self, number: int, inputs: Array) -> list[Array]:
        values = networks.forward(self._widths, self._parameters, inputs, self._is_last)
        self._kept[number] = values
        n_kept = sum(array.size for values_of_one in self._kept.values() for array in values_of_one)
        self.peak = max(self.peak, n_kept)
        return values
