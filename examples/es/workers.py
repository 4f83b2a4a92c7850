"""The trainer of a policy, and the evaluators that play its episodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

import launchpad as lp
from examples.es.evolution import Array, Environment, Pair, Strategy, perturbation, train


class Evaluator:
    """An evaluator. Per seed it plays two episodes: with the perturbation added, and with it subtracted."""

    def __init__(
        self, environment: Callable[[], Environment], sigma: float, kill_at: int | None = None
    ) -> None:
        self._environment = environment()
        self._sigma = sigma
        self._kill_at = kill_at if lp.current().attempt == 1 else None

    @lp.idempotent
    def n_parameters(self) -> int:
        return self._environment.n_parameters

    @lp.idempotent
    def evaluate(self, parameters: Array, seeds: Sequence[int]) -> list[Pair]:
        return [self._play_both(parameters, seed) for seed in seeds]

    @lp.idempotent
    def attempt(self) -> int:
        return lp.current().attempt

    def _play_both(self, parameters: Array, seed: int) -> Pair:
        if seed == self._kill_at:
            lp.testing.crash()
        offset = self._sigma * perturbation(seed, len(parameters))
        # Both episodes start the same way, so that they differ by the perturbation and not by luck.
        forwards = self._environment.play(parameters + offset, seed)
        backwards = self._environment.play(parameters - offset, seed)
        return forwards, backwards


@dataclass(frozen=True)
class Trained:
    """The result of the trainer.

    Attributes:
        returns: The mean return of the episodes of each iteration.
        attempts: The attempt in which each evaluator ends.
    """

    parameters: Array
    returns: list[float]
    attempts: list[int]


class Trainer:
    """The trainer. It shares out each iteration's seeds among the evaluators."""

    def __init__(
        self, evaluators: Sequence[lp.CourierClient[Evaluator]], strategy: Strategy
    ) -> None:
        self._evaluators = evaluators
        self._strategy = strategy
        self._returns: list[float] = []

    def run(self) -> Trained:
        n_parameters = self._evaluators[0].n_parameters()
        parameters = train(self._strategy, n_parameters, self._evaluate)
        return Trained(parameters, self._returns, lp.broadcast(self._evaluators).attempt())

    def _evaluate(self, parameters: Array, seeds: Sequence[int]) -> list[Pair]:
        parts = lp.parts(split(seeds, len(self._evaluators)))
        answers = lp.scatter(self._evaluators).evaluate(parameters, parts)
        pairs = [pair for answer in answers for pair in answer]
        self._returns.append(float(np.mean(pairs)))
        print(f"seeds {seeds[0]} to {seeds[-1]}: mean return {self._returns[-1]:.1f}")
        return pairs


def split(seeds: Sequence[int], parts: int) -> list[Sequence[int]]:
    """Cut the seeds into consecutive parts of nearly the same size."""
    bounds = [len(seeds) * part // parts for part in range(parts + 1)]
    return [seeds[start:stop] for start, stop in pairwise(bounds)]
