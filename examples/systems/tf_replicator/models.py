"""Models that users write for a single device: a classifier, a GAN, and a layer by itself.

All that they know of other replicas are the arguments of input_fn, with which it cuts the batch.
"""

from collections.abc import Iterator
from itertools import count

import numpy as np

from examples._shared import networks
from examples._shared.data import Array, Data
from examples.systems.tf_replicator.algorithm import BatchNorm, Replicator

RATE = 0.2
BATCH = 64  # of all replicas together
NOISE = 8


def descend(variable: Array, gradient: Array) -> None:
    """Do a step of gradient descent: the optimizer that both models wrap."""
    variable -= RATE * gradient


class Network:
    """A dense layer with tanh, batch norm, and a dense layer. The parameters are one flat vector."""

    def __init__(self, widths: tuple[int, int, int], replicator: Replicator) -> None:
        self._below = widths[:2]
        self._above = widths[1:]
        self._norm = BatchNorm(replicator)
        self.parameters = networks.first_parameters(widths)
        cut = (widths[0] + 1) * widths[1]
        self._parts = self.parameters[:cut], self.parameters[cut:]

    def forward(self, inputs: Array) -> Array:
        below, above = self._parts
        self._hidden = networks.forward(self._below, below, inputs, is_last=False)
        normal = self._norm.forward(self._hidden[-1])
        self._outputs = networks.forward(self._above, above, normal)
        return self._outputs[-1]

    def backward(self, gradient: Array) -> Array:
        """Return the gradient by the parameters."""
        below, above = self._parts
        gradient, of_above = networks.backward(self._above, above, self._outputs, gradient)
        gradient = self._norm.backward(gradient)
        of_below = networks.backward(self._below, below, self._hidden, gradient, is_last=False)[1]
        return np.concatenate([of_below, of_above])


class Classifier:
    """A model that reads digits."""

    def __init__(self, replicator: Replicator, digits: Data) -> None:
        self._digits = digits
        self.network = Network((64, 32, 10), replicator)
        self.variables = [self.network.parameters]
        self._optimizer = replicator.wrap_optimizer(descend)

    def input_fn(self, replica_id: int, num_replicas: int) -> Iterator[Data]:
        return (self._digits.batch(step, BATCH)[replica_id::num_replicas] for step in count())

    def step_fn(self, digits: Data) -> float:
        loss, gradient = networks.cross_entropy(self.network.forward(digits.inputs), digits)
        self._optimizer(self.network.parameters, self.network.backward(gradient))
        return loss


class Gan:
    """A model that makes up images, which a second network, the discriminator, should take for digits."""

    WIDTHS = (64, 32, 1)  # of the discriminator

    def __init__(self, replicator: Replicator, digits: Data) -> None:
        self._digits = digits
        self.generator = Network((NOISE, 32, 64), replicator)
        self._discriminator = networks.first_parameters(self.WIDTHS)
        self.variables = [self.generator.parameters, self._discriminator]
        self._optimizers = [replicator.wrap_optimizer(descend) for _ in self.variables]

    def input_fn(self, replica_id: int, num_replicas: int) -> Iterator[tuple[Array, Array]]:
        for step in count():
            noise = np.random.default_rng([1, step]).normal(size=(BATCH, NOISE))
            images = self._digits.batch(step, BATCH).inputs
            yield images[replica_id::num_replicas], noise[replica_id::num_replicas]

    def step_fn(self, inputs: tuple[Array, Array]) -> tuple[float, float]:
        images, noise = inputs
        made_up = self.generator.forward(noise)
        truth = np.repeat([[1.0], [-1.0]], len(images), axis=0)
        loss, _, gradient = self.discriminate(np.concatenate([images, made_up]), truth)
        self._optimizers[1](self._discriminator, gradient)
        target = np.ones((len(made_up), 1))
        loss_of_generator, by_images, _ = self.discriminate(made_up, target)
        self._optimizers[0](self.generator.parameters, self.generator.backward(by_images))
        return loss, loss_of_generator

    def discriminate(self, images: Array, truth: Array) -> tuple[float, Array, Array]:
        """Return the logistic loss, and its gradients by the images and by the discriminator."""
        values = networks.forward(self.WIDTHS, self._discriminator, images)
        margin = truth * values[-1]
        by_scores = -truth / (1 + np.exp(margin)) / len(images)
        gradients = networks.backward(self.WIDTHS, self._discriminator, values, by_scores)
        return float(np.logaddexp(0, -margin).mean()), *gradients


class Normalization:
    """A model that is batch norm alone: its outputs, and its gradient by the inputs."""

    def __init__(self, replicator: Replicator, _: Data | None = None) -> None:
        self.variables: list[Array] = []
        self._norm = BatchNorm(replicator)

    def input_fn(self, replica_id: int, num_replicas: int) -> Iterator[Array]:
        inputs_and_gradient = np.random.default_rng(0).normal(2, 3, (2, BATCH, 5))
        yield inputs_and_gradient[:, replica_id::num_replicas]

    def step_fn(self, inputs_and_gradient: Array) -> tuple[Array, Array]:
        inputs, gradient = inputs_and_gradient
        return self._norm.forward(inputs), self._norm.backward(gradient)
