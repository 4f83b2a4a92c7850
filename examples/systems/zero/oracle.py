"""The numbers that ranks must arrive at, from one process."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from examples._shared.data import Array
from examples._shared.problem import Problem


def rounded(values: Any) -> Array:
    """Round to 8 significant bits, half to even: to bfloat16."""
    mantissa, exponent = np.frexp(np.float32(values).astype(np.float64))
    nearest: Array = np.ldexp(np.rint(mantissa * 256), exponent - 8)
    return nearest


def added(gradients: Any) -> Array:
    """Add up gradients, one after the other."""
    return reduce(lambda total, gradient: rounded(total + gradient), gradients)


def expected(problem: Problem, n: int, at_once: bool, ranks: Callable[[int], int]) -> Array:
    """Return the parameters that ranks arrive at, which round to bfloat16 what they keep and send.

    Args:
        at_once: True if gradients of each micro-batch are reduced, as from stage 2 on.
        ranks: How many ranks do a step. Steps count from 0.
    """
    master = np.float32(problem.first_parameters)
    m = v = 0 * master
    for step in range(problem.steps):
        gradients = []  # by rank and micro-batch
        for own in problem.batch(step).parts(ranks(step)):
            pairs = [problem.loss_and_gradient(rounded(master), rows) for rows in own.parts(n)]
            gradients.append([rounded(gradient / n) for _, gradient in pairs])
        if at_once:
            g = added(
                rounded(np.mean(of_ranks, axis=0)) for of_ranks in zip(*gradients, strict=True)
            )
        else:
            g = rounded(np.mean([added(of_rank) for of_rank in gradients], axis=0))
        exact_m = 0.9 * m.astype(float) + 0.1 * g
        exact_v = 0.999 * v.astype(float) + 0.001 * g**2
        unbiased_m = exact_m / (1 - 0.9 ** (step + 1))
        unbiased_v = exact_v / (1 - 0.999 ** (step + 1))
        change = -problem.learning_rate * unbiased_m / (np.sqrt(unbiased_v) + 1e-8)
        master = np.float32(master + change)
        m = np.float32(exact_m)
        v = np.float32(exact_v)
    return rounded(master)
