"""Softmax regression on handwritten digits: the mathematics, and nothing about the nodes that compute it.

All parameters are one flat vector, so that it can be cut into shards anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

PIXELS = 64
CLASSES = 10
PARAMETERS = (PIXELS + 1) * CLASSES  # a weight per pixel and class, and a bias per class
SEED = 0


@dataclass(frozen=True)
class Examples:
    """Images, one per row and with a last column of ones for the bias, and the digits they show."""

    images: Array
    labels: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: npt.NDArray[np.int64]) -> Examples:
        return Examples(self.images[indices], self.labels[indices])


def load_digits() -> tuple[Examples, Examples]:
    """Return the examples to train on and those held out: a fifth, chosen by `SEED`."""
    # Imported here because it takes a second, and the workers get the data without it.
    from sklearn import datasets

    images, labels = datasets.load_digits(return_X_y=True)
    with_ones = np.column_stack([images / 16, np.ones(len(images))])
    everything = Examples(with_ones, labels.astype(np.int64))
    order = np.random.default_rng(SEED).permutation(len(everything))
    held_out = len(everything) // 5
    return everything.take(order[held_out:]), everything.take(order[:held_out])


def batch(examples: Examples, step: int, size: int) -> Examples:
    """Return the batch of this step; every call with it draws the same one."""
    indices = np.random.default_rng([SEED, step]).choice(len(examples), size)
    return examples.take(indices)


def loss(parameters: Array, examples: Examples) -> float:
    """Return the mean cross-entropy."""
    right = _probabilities(parameters, examples)[np.arange(len(examples)), examples.labels]
    return float(-np.log(right).mean())


def gradient(parameters: Array, examples: Examples) -> Array:
    """Return the gradient of the loss, flat like the parameters."""
    errors = _probabilities(parameters, examples)
    errors[np.arange(len(examples)), examples.labels] -= 1
    flat: Array = (examples.images.T @ errors).ravel()
    return flat / len(examples)


def accuracy(parameters: Array, examples: Examples) -> float:
    """Return the share of examples whose digit is the most probable one."""
    predicted = _probabilities(parameters, examples).argmax(axis=1)
    return float((predicted == examples.labels).mean())


def train_alone(examples: Examples, steps: int, batch_size: int, learning_rate: float) -> Array:
    """Train in this process, on whole batches: what synchronous workers must arrive at."""
    parameters = np.zeros(PARAMETERS)
    for step in range(steps):
        parameters -= learning_rate * gradient(parameters, batch(examples, step, batch_size))
    return parameters


def _probabilities(parameters: Array, examples: Examples) -> Array:
    scores = examples.images @ parameters.reshape(PIXELS + 1, CLASSES)
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities: Array = scores / scores.sum(axis=1, keepdims=True)
    return probabilities
