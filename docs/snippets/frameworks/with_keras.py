"""Keras 3 on jax: `fit` with DataParallel over the devices of all ranks."""

import os

os.environ["KERAS_BACKEND"] = "jax"  # before Keras is imported

import keras
import launchpad as lp
import numpy as np


def make_model() -> keras.Model:
    layers = [keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((4,)), *layers])
    model.compile(keras.optimizers.AdamW(0.01), loss="mean_squared_error")
    return model


def rows(rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of a rank, which are five batches, and their labels."""
    x = np.random.default_rng(rank).normal(size=(160, 4))
    return x, x.sum(axis=1, keepdims=True)


# part: train
def train(group: lp.Collective, epochs: int) -> list[float]:
    group.init_jax()  # before jax computes anything
    whole = keras.distribution.DataParallel(auto_shard_dataset=False)  # a rank has its own rows
    keras.distribution.set_distribution(whole)
    keras.utils.set_random_seed(0)  # the same in all ranks, also where load_model makes weights
    first = group.broadcast_object(lp.current().load(default=0))
    path = lp.current().state_dir / f"{first}.keras"
    model = keras.saving.load_model(path) if first else make_model()
    x, y = rows(group.rank)
    model.fit(
        x, y, initial_epoch=first, epochs=epochs, shuffle=False, verbose=0, callbacks=[Saver(group)]
    )
    return np.concatenate([value.ravel() for value in model.get_weights()]).tolist()


class Saver(keras.callbacks.Callback):
    def __init__(self, group: lp.Collective) -> None:
        super().__init__()
        self.group = group

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        self.model.save(lp.current().state_dir / f"{epoch + 1}.keras")
        self.group.barrier()
        lp.current().save(epoch + 1)  # all ranks have this checkpoint


# end
if __name__ == "__main__":
    print(lp.run(lp.ranks(train, 2, epochs=4), "local_mp", preload=["jax", "keras"]))
