"""V-trace as the paper defines it: for each step a sum over all later ones, of products."""

from math import prod

import numpy as np

from examples._shared.data import Array


def vtrace_by_definition(
    values: Array, rewards: Array, discounts: Array, ratios: Array
) -> tuple[Array, Array]:
    """Return targets and advantages: equation 1 of section 4.1, and the gradient of section 4.2."""
    n = len(rewards)
    ratios = np.minimum(1, ratios)

    def target(s: int) -> float:
        total = float(values[s])
        for t in range(s, n):
            delta = ratios[t] * (rewards[t] + discounts[t] * values[t + 1] - values[t])
            total += prod(discounts[i] * ratios[i] for i in range(s, t)) * float(delta)
        return total

    targets = np.array([target(s) for s in range(n + 1)])
    return targets[:-1], ratios * (rewards + discounts * targets[1:] - values[:-1])
