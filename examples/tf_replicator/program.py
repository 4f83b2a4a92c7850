"""The deployments of a model: replicas in step, or each by itself with a parameter server for all.

sync:    replica-0 ⇄ replica-1 ⇄ …      all_sum, all_gather, broadcast
async:   replica × n ──gradient──▶ server ──variable──▶ the same replica
"""

import os
import signal
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import launchpad as lp
from examples._shared.digits import Array, Digits
from examples.tf_replicator.algorithm import Model, Replicator, T
from examples.tf_replicator.models import Classifier, Gan, Normalization
from examples.tf_replicator.server import AsyncReplicator, ParameterServer

MakeModels = Sequence[Callable[[Replicator, Digits], Model]]
SAVE_EVERY = 10


class Trained(NamedTuple):
    """What step_fn of a model has returned, by step and replica, and its variables at the end."""

    outputs: list[list[Any]]
    variables: list[Array]


class Served(NamedTuple):
    """The server's variables, how many gradients are in them, and the sums that one replica pushed."""

    variables: list[Array]
    applied: int
    pushed: list[Array]


class SyncReplicator(Replicator):
    """One of several replicas that make each step together; replica 0 saves for all."""

    def __init__(self, group: lp.Collective, kill_at: int = 0) -> None:
        self._group, self._kill_at = group, kill_at
        self.replica_id, self.num_replicas = group.rank, group.size
        self._states: dict[str, Any] = lp.current().load(default={})

    def all_sum(self, x: Array) -> Array:
        return self._group.all_reduce(x)

    def all_gather(self, x: T) -> list[T]:
        return self._group.all_gather(x)

    def broadcast(self, x: T) -> T:
        return self._group.broadcast_object(x)  # type: ignore[no-any-return]

    def load(self, name: str, default: T) -> T:
        return self._states.get(name, default)

    def save(self, name: str, state: Any) -> None:
        me, step = lp.current(), len(state[0])
        self._states[name] = state
        if self.replica_id == 0 and step % SAVE_EVERY == 0:
            me.save(self._states)
        if self.replica_id == 1 and step == self._kill_at and me.attempt == 1:
            if me.launch_type.endswith("mt"):
                raise RuntimeError("ended on purpose, since a thread cannot be killed")
            os.kill(os.getpid(), signal.SIGKILL)


def train(
    replicator: Replicator, models: MakeModels, digits: Digits, steps: int
) -> dict[str, Trained]:
    """Train one model after the other."""
    made = [make(replicator, digits) for make in models]
    return {type(m).__name__: Trained(replicator.run(m, steps), m.variables) for m in made}


def train_in_step(group: lp.Collective, kill_at: int, *args: Any) -> tuple[dict[str, Trained], int]:
    """Return what was trained, and the generation of replicas that has ended it."""
    return train(SyncReplicator(group, kill_at), *args), group.generation


def train_with_server(server: lp.CourierClient[ParameterServer], *args: Any) -> Served:
    replicator = AsyncReplicator(server)
    train(replicator, *args)
    lp.barrier("all have pushed")
    return Served(*server.trained(), replicator.pushed)


def replicate(
    program: lp.Program,
    label: str,
    replicas: int,
    *args: Any,
    mode: Literal["sync", "async"] = "sync",
    kill_at: int = 0,
) -> None:
    """Add replicas that train what `train` is told to: its arguments without the first."""
    if mode == "sync":
        with program.group(label, restart=lp.RestartPolicy(scope="group")):
            for _ in range(replicas):
                program.add_node(lp.CollectiveNode(train_in_step, kill_at, *args))
    else:
        server = program.add_node(lp.CourierNode(ParameterServer), label="server")
        with program.group(label):
            for _ in range(replicas):
                program.add_node(lp.PyNode(train_with_server, server, *args))


def make_program(digits: Digits, steps: int, kill_at: int) -> lp.Program:
    """Return the graph: each deployment is a group, and nothing is between them."""
    program = lp.Program("tf_replicator")
    replicate(program, "two", 2, [Classifier, Gan], digits, steps)
    replicate(program, "four", 4, [Normalization, Classifier], digits, steps)
    replicate(program, "killed", 2, [Gan], digits, steps, kill_at=kill_at)
    replicate(program, "async", 2, [Classifier], digits, steps, mode="async")
    return program
