"""In-graph replication: one process runs the step of a single device on several devices, by jax.shard_map.

As in the paper, the step is traced once. Where replicas meet, the graph has an operation, `jax.lax.psum`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from examples._shared.problem import Problem
from examples.systems.tf_replicator.algorithm import Trained


def step_fn(
    all_sum: Callable[[Any], Any], rate: float, matrices: Any, inputs: Any, targets: Any
) -> tuple[Any, Any]:
    """Do a step, with batch norm after the first layer. Return the new parameters, and the loss."""

    def loss_fn(matrices: Any) -> Any:
        first, *rest = matrices
        x = jnp.tanh(inputs @ first[:-1] + first[-1])
        rows = all_sum(len(x))
        mean = all_sum(x.sum(axis=0)) / rows
        variance = all_sum(((x - mean) ** 2).sum(axis=0)) / rows
        x = (x - mean) / jnp.sqrt(variance + 1e-5)
        for i, matrix in enumerate(rest):
            x = (jnp.tanh(x) if i else x) @ matrix[:-1] + matrix[-1]
        return -(jax.nn.log_softmax(x) * jax.nn.one_hot(targets, x.shape[1])).sum(axis=1).mean()

    loss, gradients = jax.value_and_grad(loss_fn)(matrices)
    pairs = zip(matrices, gradients, strict=True)
    return [x - rate * all_sum(gradient) / all_sum(1) for x, gradient in pairs], loss[None]


def train_in_graph(problem: Problem, n: int) -> Trained:
    """Train a classifier of dense layers on n devices of this process."""
    own = PartitionSpec("replica")
    all_of = PartitionSpec()
    step = jax.shard_map(
        partial(step_fn, partial(jax.lax.psum, axis_name="replica"), problem.learning_rate),
        mesh=Mesh(jax.devices()[:n], ("replica",)),
        in_specs=(all_of, own, own),
        out_specs=(all_of, own),
        check_vma=False,  # so that the gradient of a sum is the sum of the replicas' gradients
    )
    compiled = jax.jit(step)
    matrices: Any = problem.dense.matrices(problem.first_parameters)
    losses = []
    for number in range(problem.steps):
        data = problem.batch(number)
        matrices, of_replicas = compiled(matrices, data.inputs, data.targets)
        losses.append(of_replicas.tolist())
    return Trained(losses, [np.concatenate([np.ravel(matrix) for matrix in matrices])])
