"""Replicas that train together: in step, or each by itself with a server of the variables."""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import launchpad as lp
from examples._shared.data import Array
from examples.systems.tf_replicator.algorithm import Model, Optimizer, Replicator, T, Trained

SAVE_EVERY = 10
MakeModel = Callable[[Replicator, Any], Model]


class Result(NamedTuple):
    """The result of a replica: its outputs, the variables when all have trained, and its attempt."""

    outputs: list[list[Any]]
    variables: list[Array]
    attempt: int
    pushed: list[Array]  # for each variable, the sum of the gradients that went to a server


class SyncReplicator(Replicator):
    """One of several replicas that make each step together. The first one saves for all."""

    def __init__(self, group: lp.Collective, kill_at: int | None = None) -> None:
        self._group = group
        self._kill_at = kill_at
        self.replica_id = group.rank
        self.num_replicas = group.size

    def all_sum(self, x: Array) -> Array:
        return self._group.all_reduce(x)

    def all_gather(self, x: T) -> list[T]:
        return self._group.all_gather(x)

    def broadcast(self, x: T) -> T:
        received: T = self._group.broadcast_object(x)
        return received

    def load(self, default: Trained) -> Trained:
        saved: Trained = lp.current().load(default=default)
        return saved

    def save(self, trained: Trained) -> None:
        step = len(trained.outputs)
        if self.replica_id == 0 and step % SAVE_EVERY == 0:
            lp.current().save(trained)
        if self.replica_id == 1 and step == self._kill_at and lp.current().attempt == 1:
            lp.testing.crash()

    def result(self, trained: Trained) -> Result:
        return Result(*trained, lp.current().attempt, [])


class ParameterServer(Replicator):
    """The server of the variables. It applies each gradient as soon as it comes."""

    def __init__(self, make: MakeModel, data: Any) -> None:
        self._lock = threading.Lock()
        self._optimizers: list[Optimizer] = []
        self._variables = make(self, data).variables

    def wrap_optimizer(self, optimizer: Optimizer) -> Optimizer:
        self._optimizers.append(optimizer)
        return optimizer

    def push(self, number: int, gradient: Array) -> Array:
        """Apply the gradient by a variable. Return the variable's new value."""
        with self._lock:
            self._optimizers[number](self._variables[number], gradient)
            return self._variables[number].copy()

    def variables(self) -> list[Array]:
        return self._variables


class AsyncReplicator(Replicator):
    """One of several replicas that share only their variables. Its sums are over itself alone."""

    def __init__(self, server: lp.CourierClient[ParameterServer]) -> None:
        self._server = server
        self._pushed: list[Any] = []
        self.replica_id = lp.current().replica_index
        self.num_replicas = lp.current().num_replicas

    def wrap_optimizer(self, optimizer: Optimizer) -> Optimizer:
        """Return an optimizer for the next variable, which the server applies."""
        number = len(self._pushed)
        self._pushed.append(0)

        def push(variable: Array, gradient: Array) -> None:
            variable[...] = self._server.push(number, gradient)
            self._pushed[number] = self._pushed[number] + gradient

        return push

    def result(self, trained: Trained) -> Result:
        variables = self._server.variables()
        return Result(trained.outputs, variables, lp.current().attempt, self._pushed)


def train(
    link: Any,
    kind: Callable[[Any], SyncReplicator | AsyncReplicator],
    make: MakeModel,
    data: Any,
    steps: int,
) -> Result:
    """Train with a replicator that has a link to the others: their group, or the server."""
    replicator = kind(link)
    trained = replicator.train(make(replicator, data), steps)
    lp.barrier("all have trained")
    return replicator.result(trained)
