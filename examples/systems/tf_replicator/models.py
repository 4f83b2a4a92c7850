"""A model that a user writes for a single device.

All that it knows of other replicas are the arguments of input_fn, with which it cuts the batch.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count

import numpy as np

from examples._shared.data import Array, Data
from examples._shared.problem import Problem
from examples.systems.tf_replicator.algorithm import BatchNorm, Replicator


def descend(rate: float, variable: Array, gradient: Array) -> None:
    """Do a step of gradient descent."""
    variable -= rate * gradient


class Trainer:
    """A problem's network, with batch norm after its first layer, and its training."""

    def __init__(self, replicator: Replicator, problem: Problem) -> None:
        self._problem = problem
        self._below = problem.network.part(0, 1)
        self._above = problem.network.part(1, len(problem.network.sizes))
        self._norm = BatchNorm(replicator)
        self._optimizer = replicator.wrap_optimizer(partial(descend, problem.learning_rate))
        self.variables = [problem.first_parameters]

    def input_fn(self, replica_id: int, num_replicas: int) -> Iterator[Data]:
        return (self._problem.batch(step)[replica_id::num_replicas] for step in count())

    def step_fn(self, data: Data) -> float:
        loss, gradient = self._problem.loss_function(self.forward(data.inputs), data)
        self._optimizer(self.variables[0], self.backward(gradient))
        return loss

    def forward(self, inputs: Array) -> Array:
        below, above = np.split(self.variables[0], [sum(self._below.sizes)])
        self._hidden = self._below.forward(below, inputs)
        self._outputs = self._above.forward(above, self._norm.forward(self._hidden[-1]))
        return self._outputs[-1]

    def backward(self, gradient: Array) -> Array:
        """Return the gradient by the parameters."""
        below, above = np.split(self.variables[0], [sum(self._below.sizes)])
        gradient, by_above = self._above.backward(above, self._outputs, gradient)
        gradient = self._norm.backward(gradient)
        _, by_below = self._below.backward(below, self._hidden, gradient)
        return np.concatenate([by_below, by_above])


def accuracy(problem: Problem, variables: Sequence[Array], held_out: Data) -> float:
    """Return the share of rows that a trained model recognises, as one batch."""
    model = Trainer(Replicator(), problem)
    model.variables = list(variables)
    return float((model.forward(held_out.inputs).argmax(axis=1) == held_out.targets).mean())
