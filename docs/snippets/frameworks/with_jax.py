"""jax and optax: the rows of a batch are spread over the processes."""

from typing import Any

import jax
import launchpad as lp
import numpy as np
import optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec


def batch(step: int, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Return 8 rows and their labels: for a step and a rank always the same ones."""
    x = np.random.default_rng([step, rank]).normal(size=(8, 4)).astype(np.float32)
    return x, x.sum(axis=1)


# part: train
OPTIMIZER = optax.adamw(0.05)


@jax.jit
def update(weights: Any, moments: Any, x: Any, y: Any) -> Any:
    gradient = jax.grad(lambda w: ((x @ w - y) ** 2).mean())(weights)
    changes, moments = OPTIMIZER.update(gradient, moments, weights)
    return optax.apply_updates(weights, changes), moments


def train(group: lp.Collective, steps: int) -> list[float]:
    group.init_jax()  # before jax computes anything
    mesh = jax.make_mesh((group.size,), ("rank",), axis_types=(AxisType.Auto,))
    rows = NamedSharding(mesh, PartitionSpec("rank"))
    weights = np.zeros(4, np.float32)
    start = (0, weights, OPTIMIZER.init(weights))
    first, weights, moments = group.broadcast_object(lp.current().load(default=start))
    for step in range(first, steps):
        x, y = (jax.make_array_from_process_local_data(rows, a) for a in batch(step, group.rank))
        weights, moments = update(weights, moments, x, y)
        if group.rank == 0:
            lp.current().save((step + 1, *jax.device_get((weights, moments))))
    return jax.device_get(weights).tolist()


# end
if __name__ == "__main__":
    print(lp.run(lp.ranks(train, 2, steps=20), "local_mp", preload=["jax", "optax"]))
