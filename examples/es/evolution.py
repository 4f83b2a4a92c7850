"""Evolution strategies: the mathematics, and nothing about the nodes that play the episodes.

Salimans et al. 2017, https://arxiv.org/abs/1703.03864, with mirrored sampling and returns replaced
by ranks. All random numbers come from a seed, and every sum is taken in the order of the seeds. So
the result is the same to the last bit, whichever worker evaluates which seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from examples.es.cartpole import PARAMETERS, Array

PAIRS = 16  # perturbations per iteration; each is tried forwards and backwards
SIGMA = 0.5  # how far a perturbation goes
LEARNING_RATE = 1.0

# The returns of the parameters perturbed forwards, and backwards.
Pair = tuple[float, float]
Evaluate = Callable[[Array, Sequence[int]], list[Pair]]


def train(evaluate: Evaluate, iterations: int) -> Array:
    """Return the parameters after all iterations; `evaluate` plays each seed's two episodes."""
    parameters = np.zeros(PARAMETERS)
    for iteration in range(iterations):
        seeds = range(iteration * PAIRS, (iteration + 1) * PAIRS)
        pairs = evaluate(parameters, seeds)
        parameters = parameters + LEARNING_RATE * estimate_gradient(seeds, pairs)
    return parameters


def perturbation(seed: int) -> Array:
    """Return the direction that a seed stands for: 4 numbers here, millions in a real network."""
    return np.random.default_rng(seed).standard_normal(PARAMETERS)


def estimate_gradient(seeds: Sequence[int], pairs: Sequence[Pair]) -> Array:
    """Return the mean direction, each weighted by how much better forwards was than backwards."""
    ranks = centred_ranks(np.array(pairs))
    total = np.zeros(PARAMETERS)
    for seed, (forwards, backwards) in zip(seeds, ranks, strict=True):
        total += (forwards - backwards) * perturbation(seed)
    return total / (2 * len(seeds) * SIGMA)


def centred_ranks(returns: Array) -> Array:
    """Replace the worst return by -0.5 and the best by 0.5; equal returns get equal ranks.

    This keeps one lucky episode from drowning all others.
    """
    flat = returns.ravel()
    beaten = np.sign(flat[:, np.newaxis] - flat).sum(axis=1)
    ranks: Array = beaten.reshape(returns.shape) / (2 * (len(flat) - 1))
    return ranks
