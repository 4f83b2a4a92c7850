"""Asynchronous replicas: each pushes its gradients to a parameter server, and doesn't wait for others."""

import threading

import numpy as np

import launchpad as lp
from examples._shared.data import Array
from examples.systems.tf_replicator.algorithm import Optimizer, Replicator


class ParameterServer:
    """The server of the variables. It applies each gradient as soon as it comes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._variables: dict[int, tuple[Array, Optimizer]] = {}
        self._applied = 0

    def begin(self, number: int, variable: Array, optimizer: Optimizer) -> None:
        """Take the first value of a variable, from the replica that comes first."""
        with self._lock:
            self._variables.setdefault(number, (variable.copy(), optimizer))

    def push(self, number: int, gradient: Array) -> Array:
        """Apply the gradient. Return the new value of the variable."""
        with self._lock:
            variable, optimizer = self._variables[number]
            optimizer(variable, gradient)
            self._applied += 1
            return variable.copy()

    def variables(self) -> tuple[int, list[Array]]:
        """Return how many gradients are in the variables, and the variables."""
        with self._lock:
            variables = [self._variables[number][0] for number in sorted(self._variables)]
            return self._applied, [variable.copy() for variable in variables]


class AsyncReplicator(Replicator):
    """One of several replicas that share only their variables. Its sums are over itself alone."""

    def __init__(self, server: lp.CourierClient[ParameterServer]) -> None:
        self._server = server
        self.pushed: list[Array] = []  # for each wrapped optimizer, the sum of its gradients
        self.replica_id = lp.current().replica_index
        self.num_replicas = lp.current().num_replicas

    def wrap_optimizer(self, optimizer: Optimizer) -> Optimizer:
        """Return an optimizer for one variable, which the server applies."""
        number = len(self.pushed)
        self.pushed.append(np.zeros(0))

        def push(variable: Array, gradient: Array) -> None:
            if not self.pushed[number].size:
                self._server.begin(number, variable, optimizer)
                self.pushed[number] = np.zeros_like(variable)
            variable[...] = self._server.push(number, gradient)
            self.pushed[number] += gradient

        return push
