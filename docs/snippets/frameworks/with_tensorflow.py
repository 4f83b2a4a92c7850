"""TensorFlow: MultiWorkerMirroredStrategy, with a loop of its own, since `fit` of Keras 3 fails."""

import json
import os
import socket
from typing import Any

import launchpad as lp
import numpy as np
import tensorflow as tf


def batch(step: int, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Return 8 rows and their labels: for a step and a rank always the same ones."""
    x = np.random.default_rng([step, rank]).normal(size=(8, 4)).astype(np.float32)
    return x, x.sum(axis=1, keepdims=True)


def make_model() -> tuple[Any, Any]:
    tf.keras.utils.set_random_seed(0)  # the same first weights in all ranks
    layers = [tf.keras.layers.Dense(16, activation="tanh"), tf.keras.layers.Dense(1)]
    model = tf.keras.Sequential([tf.keras.Input((4,)), *layers])
    optimizer = tf.keras.optimizers.AdamW(0.01)
    optimizer.build(model.trainable_variables)
    return model, optimizer


# part: train
def make_strategy(group: lp.Collective) -> tf.distribute.Strategy:
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]  # it was free
    workers = group.all_gather_object(f"{socket.gethostname()}:{port}")
    task = {"type": "worker", "index": group.rank}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
    return tf.distribute.MultiWorkerMirroredStrategy()


@tf.function(autograph=False)
def update(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    n_ranks = tf.distribute.get_replica_context().num_replicas_in_sync
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2) / n_ranks
    gradients = tape.gradient(loss, model.trainable_variables)  # the optimizer adds up all ranks'
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))


def train(group: lp.Collective, steps: int) -> list[float]:
    strategy = make_strategy(group)  # before TensorFlow computes anything
    with strategy.scope():
        model, optimizer = make_model()
    variables = [*model.variables, *optimizer.variables]
    start = (0, [variable.numpy() for variable in variables])
    first, values = group.broadcast_object(lp.current().load(default=start))  # rank 0's
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
    for step in range(first, steps):
        strategy.run(update, (model, optimizer, *batch(step, group.rank)))
        if group.rank == 0:
            lp.current().save((step + 1, [variable.numpy() for variable in variables]))
    return np.concatenate([value.ravel() for value in model.get_weights()]).tolist()


# end
if __name__ == "__main__":
    print(lp.run(lp.ranks(train, 2, steps=20), "local_mp", preload=["tensorflow"]))
