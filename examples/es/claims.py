"""Checks of a policy. The oracle trains in one process, and states the method's formulas once more."""

from __future__ import annotations

import hashlib

import numpy as np

from examples._shared.checks import check
from examples.es.evolution import Array, Environment, Strategy
from examples.es.workers import Trained

FRESH_SEEDS = range(1_000_000, 1_000_020)  # of episodes that training never saw
WANTED_RETURN = 475.0  # of 500; with this gymnasium calls CartPole-v1 solved


def train_alone(environment: Environment, strategy: Strategy) -> Array:
    """Return θ after steps of θ + α/(2nσ) Σ (rank of F(θ + σε) - rank of F(θ - σε)) ε."""
    policy = np.zeros(environment.n_parameters)
    n = strategy.pairs
    for iteration in range(strategy.iterations):
        seeds = range(n * iteration, n * iteration + n)
        directions = [np.random.default_rng(seed).standard_normal(len(policy)) for seed in seeds]
        returns = []
        for seed, direction in zip(seeds, directions, strict=True):
            returns.append(environment.play(policy + strategy.sigma * direction, seed))
            returns.append(environment.play(policy - strategy.sigma * direction, seed))
        n_below = [sum(other < own for other in returns) for own in returns]
        n_above = [sum(other > own for other in returns) for own in returns]
        ranks = [(b - a) / (2 * (2 * n - 1)) for b, a in zip(n_below, n_above, strict=True)]
        total = np.zeros(len(policy))
        for i, direction in enumerate(directions):
            total += (ranks[2 * i] - ranks[2 * i + 1]) * direction
        policy = policy + strategy.learning_rate * (total / (2 * n * strategy.sigma))
    return policy


def check_equals_training_alone(parameters: Array, alone: Array) -> None:
    """Check that training in this process, without evaluators elsewhere, gives the same bits."""
    digests = sorted(
        {hashlib.sha256(each.tobytes()).hexdigest()[:12] for each in (parameters, alone)}
    )
    check(
        len(digests) == 1,
        "training in one process gives the same bits",
        f"sha256 {' '.join(digests)}",
    )


def check_return(parameters: Array, environment: Environment) -> None:
    """Check that the policy balances the pole in episodes it was not trained on."""
    mean = float(np.mean([environment.play(parameters, seed) for seed in FRESH_SEEDS]))
    check(
        mean >= WANTED_RETURN,
        f"the pole is balanced for at least {WANTED_RETURN:g} of 500 steps",
        f"{mean:.1f}, the mean of {len(FRESH_SEEDS)} fresh episodes",
    )


def check_kill(disturbed: Trained, undisturbed: Trained) -> None:
    """Check that an evaluator was killed, and that this changed nothing."""
    is_same = np.array_equal(disturbed.parameters, undisturbed.parameters)
    check(
        is_same and disturbed.attempts[0] == 2,
        "an evaluator that is killed changes no bit of the policy",
        f"{'the same' if is_same else 'other'} bits; evaluators end in attempts {disturbed.attempts}",
    )
