"""Experiments: they draw hyperparameters from a space, and decide by all metrics which trials go on."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


def log(low: float, high: float) -> Callable[..., Any]:
    """Return a distribution of numbers, of which each power of ten is as likely as another."""
    return lambda rng: math.exp(rng.uniform(math.log(low), math.log(high)))


def choice(*values: Any) -> Callable[..., Any]:
    """Return a distribution of these values."""
    return lambda rng: values[rng.integers(len(values))]


@dataclass(frozen=True, eq=False, kw_only=True)
class Random:
    """Random search: each trial calls `train(context, hparams)` on all its slots, up to the last step."""

    name: str
    train: Callable[[Any, dict[str, Any]], None]
    space: Mapping[str, Callable[..., Any]]
    trials: int
    steps: int
    seed: int = 0
    slots: int = 1
    priority: int = 42  # the smaller the number, the earlier it gets slots
    after: int = 0  # it begins when a trial of another one has made this step

    def points(self) -> list[dict[str, Any]]:
        """Return the hyperparameters of all trials."""
        rng = np.random.default_rng(self.seed)
        return [{key: draw(rng) for key, draw in self.space.items()} for _ in range(self.trials)]

    def goes_on(self, trial: int, curves: Sequence[Sequence[float]]) -> bool:
        """True if a trial goes on; `curves` has each trial's metrics by step, the smaller the better."""
        return len(curves[trial]) < self.steps


@dataclass(frozen=True, eq=False, kw_only=True)
class Asha(Random):
    """ASHA. At each rung a trial goes on if it is among the best 1/eta of those that have come so far."""

    eta: int = 4
    max_rungs: int = 5
    brackets: int = 1  # more are adaptive ASHA: each has one rung less, and fewer trials

    def rungs(self) -> list[int]:
        """Return how many rungs each trial has. Those with equally many are a bracket, and compete."""
        most = self.max_rungs
        # A trial with n rungs costs about n / eta ** (n - 1), and all brackets should cost the same.
        weights = {n: self.eta ** (n - 1) / n for n in range(most - self.brackets + 1, most + 1)}
        share = self.trials / sum(weights.values())
        fewer = [n for n in weights if n < most for _ in range(max(int(weights[n] * share), 1))]
        return [most] * (self.trials - len(fewer)) + fewer

    def goes_on(self, trial: int, curves: Sequence[Sequence[float]]) -> bool:
        rungs = self.rungs()
        step = len(curves[trial])
        if step not in [self.steps // self.eta**k for k in range(1, rungs[trial])]:
            return step < self.steps
        rivals = [curve for n, curve in zip(rungs, curves, strict=True) if n == rungs[trial]]
        metrics = sorted(curve[step - 1] for curve in rivals if len(curve) >= step)
        return metrics.index(curves[trial][-1]) < max(len(metrics) // self.eta, 1)
