"""Ranks that fit a line to points together, each to its share of them."""

import launchpad as lp
import numpy as np


# part: rank
def fit(group: lp.Collective, n_points: int) -> list[float]:
    x = np.linspace(0, 1, n_points)[group.rank :: group.size]  # this rank's share
    y = 3 * x + 1
    weights = group.broadcast(np.zeros(2))  # rank 0's, in all ranks
    for _ in range(500):
        error = weights[0] * x + weights[1] - y
        gradient = np.array([(error * x).mean(), error.mean()])
        weights -= group.all_reduce(gradient, op="mean")  # the same bits in all ranks
    return [round(float(weight), 3) for weight in weights]


# part: program
print(lp.run(lp.ranks(fit, 3, 99))["rank"])
# end
