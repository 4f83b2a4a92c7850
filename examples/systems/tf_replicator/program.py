"""The deployments of models: synchronous replicas, and asynchronous ones with a parameter server.

sync:    replica-0 ⇄ replica-1 ⇄ …      all_sum, all_gather, broadcast
async:   replica × n ──gradient──▶ server ──variable──▶ the same replica
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import launchpad as lp
from examples._shared.data import Array, Data
from examples.systems.tf_replicator.algorithm import MakeModel, Model, Replicator, T, Trained, train
from examples.systems.tf_replicator.models import Classifier, Gan, Normalization
from examples.systems.tf_replicator.server import AsyncReplicator, ParameterServer

SAVE_EVERY = 10


class SyncReplicator(Replicator):
    """One of several replicas that make each step together. The first one saves for all."""

    def __init__(self, group: lp.Collective, kill_at: int = 0) -> None:
        self._group = group
        self._kill_at = kill_at
        self.replica_id = group.rank
        self.num_replicas = group.size
        self._checkpoints: dict[MakeModel, Trained] = lp.current().load(default={})

    def all_sum(self, x: Array) -> Array:
        return self._group.all_reduce(x)

    def all_gather(self, x: T) -> list[T]:
        return self._group.all_gather(x)

    def broadcast(self, x: T) -> T:
        received: T = self._group.broadcast_object(x)
        return received

    def load(self, model: Model, default: Trained) -> Trained:
        return self._checkpoints.get(type(model), default)

    def save(self, model: Model, trained: Trained) -> None:
        me = lp.current()
        step = len(trained.outputs)
        self._checkpoints[type(model)] = trained
        if self.replica_id == 0 and step % SAVE_EVERY == 0:
            me.save(self._checkpoints)
        if self.replica_id == 1 and step == self._kill_at and me.attempt == 1:
            lp.testing.crash()


class SyncResult(NamedTuple):
    """The result of a synchronous replica, and the generation of its group at the end."""

    trained: dict[MakeModel, Trained]
    generation: int


class AsyncResult(NamedTuple):
    """The result of an asynchronous replica.

    Attributes:
        applied: How many gradients were in the server's variables at the end.
        variables: The server's variables at the end.
        pushed: The sum of the gradients that the replica has pushed, by variable.
    """

    applied: int
    variables: list[Array]
    pushed: list[Array]


def _train_sync(group: lp.Collective, kill_at: int, *args: Any) -> SyncResult:
    return SyncResult(train(SyncReplicator(group, kill_at), *args), group.generation)


def _train_async(server: lp.CourierClient[ParameterServer], *args: Any) -> AsyncResult:
    replicator = AsyncReplicator(server)
    train(replicator, *args)
    return AsyncResult(*server.variables(), replicator.pushed)


def replicate(
    program: lp.Program, label: str, n: int, *args: Any, mode: str = "sync", kill_at: int = 0
) -> None:
    """Add n replicas that call `train` with these arguments. The second kills itself at step `kill_at`."""
    node: Callable[[], lp.Node[Any]] = partial(lp.CollectiveNode, _train_sync, kill_at, *args)
    if mode == "async":
        server = program.add_node(lp.CourierNode(ParameterServer), label=f"{label}_server")
        node = partial(lp.PyNode, _train_async, server, *args)
    restart = lp.RestartPolicy(scope="group") if mode == "sync" else None
    with program.group(label, restart=restart):
        for _ in range(n):
            program.add_node(node())


def make_program(digits: Data, steps: int, kill_at: int) -> lp.Program:
    """Return the graph: each deployment is a group of its own."""
    program = lp.Program("tf_replicator")
    replicate(program, "two", 2, [Classifier, Gan], digits, steps)
    replicate(program, "four", 4, [Normalization, Classifier], digits, steps)
    replicate(program, "killed", 2, [Gan], digits, steps, kill_at=kill_at)
    replicate(program, "async", 2, [Classifier, Gan], digits, steps, mode="async")
    return program
