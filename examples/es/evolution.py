"""Evolution strategies: the mathematics, and nothing about the nodes that play the episodes.

Salimans et al. 2017, https://arxiv.org/abs/1703.03864, with mirrored sampling and returns replaced
by ranks. All random numbers come from a seed, and every sum is taken in the order of the seeds. So
the result is the same to the last bit, whichever worker evaluates which seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

# The returns of the parameters perturbed forwards, and backwards.
Pair = tuple[float, float]
Evaluate = Callable[[Array, Sequence[int]], list[Pair]]


class Environment(Protocol):
    """An environment, together with a policy whose parameters are one flat vector."""

    @property
    def n_parameters(self) -> int: ...

    def play(self, parameters: Array, seed: int) -> float:
        """Play an episode, and return its return. The same seed starts the same way."""


@dataclass(frozen=True)
class Strategy:
    """The sizes of an evolution strategy.

    Attributes:
        pairs: Perturbations per iteration; each is tried forwards and backwards.
        sigma: How far a perturbation goes.
    """

    iterations: int = 20
    pairs: int = 16
    sigma: float = 0.5
    learning_rate: float = 1.0


def train(strategy: Strategy, n_parameters: int, evaluate: Evaluate) -> Array:
    """Return the parameters after all iterations; `evaluate` plays each seed's two episodes."""
    parameters = np.zeros(n_parameters)
    for iteration in range(strategy.iterations):
        seeds = range(iteration * strategy.pairs, (iteration + 1) * strategy.pairs)
        ranks = centred_ranks(np.array(evaluate(parameters, seeds)))
        # The mean direction, each weighted by how much better forwards was than backwards.
        total = np.zeros(n_parameters)
        for seed, (forwards, backwards) in zip(seeds, ranks, strict=True):
            total += (forwards - backwards) * perturbation(seed, n_parameters)
        gradient = total / (2 * strategy.pairs * strategy.sigma)
        parameters = parameters + strategy.learning_rate * gradient
    return parameters


def perturbation(seed: int, n_parameters: int) -> Array:
    """Return the direction that a seed stands for: 4 numbers here, millions in a real network."""
    return np.random.default_rng(seed).standard_normal(n_parameters)


def centred_ranks(returns: Array) -> Array:
    """Replace the worst return by -0.5 and the best by 0.5; equal returns get equal ranks.

    This keeps one lucky episode from drowning all others.
    """
    flat = returns.ravel()
    beaten = np.sign(flat[:, np.newaxis] - flat).sum(axis=1)
    ranks: Array = beaten.reshape(returns.shape) / (2 * (len(flat) - 1))
    return ranks
