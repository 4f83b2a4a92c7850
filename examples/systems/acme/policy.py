"""The scores of a network for one observation, and an actor that takes the action with the highest score."""

from typing import Protocol

import numpy as np

from examples._shared import networks
from examples._shared.data import Array

WIDTHS = (4, 64, 2)
SCALE = np.array([1.2, 1.25, 0.105, 1.25])  # of observations


class HasValues(Protocol):
    """Variables, or a client that keeps them fresh."""

    @property
    def values(self) -> Array: ...


class Scores:
    """The scores of the two actions. New variables are cut into matrices once."""

    def __init__(self, variables: HasValues) -> None:
        self._variables = variables
        self._cut(variables.values)

    def __call__(self, observation: Array) -> Array:
        if self._variables.values is not self._known:
            self._cut(self._variables.values)
        hidden = np.tanh(observation / SCALE @ self._first[:-1] + self._first[-1])
        scores: Array = hidden @ self._last[:-1] + self._last[-1]
        return scores

    def _cut(self, values: Array) -> None:
        self._known = values
        self._first, self._last = networks.matrices(WIDTHS, values)


class GreedyActor:
    """An actor for evaluation: it takes the action with the highest score, and records nothing."""

    def __init__(self, variables: HasValues) -> None:
        self._scores = Scores(variables)

    def select_action(self, observation: Array) -> int:
        return int(self._scores(observation).argmax())

    def observe_first(self, observation: Array) -> None:
        """Not needed."""

    def observe(
        self, action: int, reward: float, observation: Array, discount: float, is_last: bool
    ) -> None:
        """Not needed."""

    def update(self) -> None:
        """Keep to these variables until the evaluator has newer ones."""
