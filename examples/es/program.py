"""Evolution strategies: evaluators play episodes with perturbed parameters, a trainer updates them.

    trainer ──parameters, seeds──▶ evaluator × n
       ▲────────two returns per seed─────┘

A seed stands for a perturbation, and both sides rebuild the vector from it. So an iteration sends only
the parameters and a few numbers, even when the policy is a large network.

An evaluator has no state: if one dies, its next attempt plays the same episodes, and the bits are the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

import launchpad as lp
from examples._shared.checks import check
from examples.es.cartpole import Array, CartPole
from examples.es.evolution import SIGMA, Pair, perturbation, train

ITERATIONS = 20
FRESH_SEEDS = range(1_000_000, 1_000_020)  # of episodes that training never saw
WANTED_RETURN = 475.0  # of 500; with this gymnasium calls CartPole-v1 solved


class Evaluator:
    """An evaluator. Per seed it plays two episodes: with the perturbation added, and with it subtracted."""

    def __init__(self) -> None:
        self._cartpole = CartPole()

    @lp.idempotent
    def evaluate(self, parameters: Array, seeds: Sequence[int]) -> list[Pair]:
        return [self._play_both(parameters, seed) for seed in seeds]

    def _play_both(self, parameters: Array, seed: int) -> Pair:
        offset = SIGMA * perturbation(seed)
        # Both episodes start the same way, so that they differ by the perturbation and not by luck.
        forwards = self._cartpole.play(parameters + offset, seed)
        backwards = self._cartpole.play(parameters - offset, seed)
        return forwards, backwards


def train_with(evaluators: Sequence[lp.CourierClient[Evaluator]], iterations: int) -> Array:
    """Train with each iteration's seeds shared out among the evaluators, and return the parameters."""

    def evaluate(parameters: Array, seeds: Sequence[int]) -> list[Pair]:
        parts = zip(evaluators, split(seeds, len(evaluators)), strict=True)
        futures = [lp.submit(evaluator.evaluate, parameters, part) for evaluator, part in parts]
        pairs: list[Pair] = [pair for future in futures for pair in future.result()]
        print(f"seeds {seeds[0]} to {seeds[-1]}: mean return {np.mean(pairs):.1f}")
        return pairs

    return train(evaluate, iterations)


def split(seeds: Sequence[int], parts: int) -> list[Sequence[int]]:
    """Cut the seeds into consecutive parts of nearly the same size."""
    bounds = [len(seeds) * part // parts for part in range(parts + 1)]
    return [seeds[start:stop] for start, stop in pairwise(bounds)]


def check_equals_training_alone(parameters: Array, iterations: int) -> None:
    """Check that training in this process, without evaluators elsewhere, gives the same bits."""
    digests = {digest(parameters), digest(train(Evaluator().evaluate, iterations))}
    check(
        len(digests) == 1,
        "training in one process gives the same bits",
        f"sha256 {' '.join(sorted(each[:12] for each in digests))}",
    )


def check_return(parameters: Array) -> None:
    """The policy balances the pole in episodes it was not trained on."""
    cartpole = CartPole()
    mean = float(np.mean([cartpole.play(parameters, seed) for seed in FRESH_SEEDS]))
    check(
        mean >= WANTED_RETURN,
        f"the pole is balanced for at least {WANTED_RETURN:g} of 500 steps",
        f"{mean:.1f}, the mean of {len(FRESH_SEEDS)} fresh episodes",
    )


def digest(parameters: Array) -> str:
    """Return the SHA-256 of the parameters' bytes: equal only if every bit is."""
    return hashlib.sha256(parameters.tobytes()).hexdigest()


def make_program(evaluators: int = 4, iterations: int = ITERATIONS) -> lp.Program:
    """Return the graph: trainer → evaluators."""
    program = lp.Program("es")
    with program.group("evaluator", restart=lp.RestartPolicy()):
        handles = [program.add_node(lp.CourierNode(Evaluator)) for _ in range(evaluators)]
    program.add_node(lp.PyNode(train_with, handles, iterations), label="trainer")
    return program
