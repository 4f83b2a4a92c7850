"""Ranks that train at one of ZeRO's stages.

rank-0 ◀── parts ──▶ rank-1 ◀── parts ──▶ … rank-n    each with each
   │                    │                     │
   └──────shard──▶ group_dir ◀──shard─────────┘       read by the next generation, or launch
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import launchpad as lp
from examples._shared.data import Array, Data
from examples._shared.networks import cross_entropy
from examples.systems.zero import checkpoint
from examples.systems.zero.algorithm import STAGES, Stage0
from examples.systems.zero.memory import Memory, memory_of
from examples.systems.zero.model import BATCH, backward, first_layers, forward

SAVED_AT = 2  # after this step
KILLED_AT = 3  # after this step
Callback = Callable[[Stage0], None]


def train(group: lp.Collective, digits: Data, steps: int, stage: int, then: Callback) -> Stage0:
    """Train; what is returned has the parameters."""
    store = STAGES[stage](group, first_layers())
    then(store)
    while store.steps < steps:
        batch = digits.batch(store.steps, BATCH)[group.rank :: group.size]
        values = forward(store, batch.inputs)
        backward(store, values, cross_entropy(values[-1], batch)[1])
        store.update()
        then(store)
    return store


def weights(store: Stage0) -> Array:
    """Return all parameters, as the next step would use them."""
    return np.concatenate([store.layer(i) for i in range(len(store.sizes))])


class Rank:
    """A rank. It trains at the stages that the script asks for, one after the other."""

    def __init__(self, group: lp.Collective, digits: Data) -> None:
        self._group = group
        self._digits = digits

    def train(self, stage: int, steps: int) -> Memory:
        """Train from the beginning."""
        self._store = train(self._group, self._digits, steps, stage, lambda _: None)
        return memory_of(self._store)

    def weights(self) -> Array:
        """Return all parameters that this rank has reached."""
        return weights(self._store)


class Resumed(NamedTuple):
    """The result of a rank, with its generation and the step at which it began."""

    weights: Array
    generation: int
    began_at: int


def resume(group: lp.Collective, digits: Data, steps: int, victim: int = -1) -> Resumed:
    """Train at stage 3, from a checkpoint if there is one. The victim is killed once."""
    began_at: list[int] = []

    def then(store: Stage0) -> None:
        if not began_at:
            checkpoint.load(lp.current().group_dir, store, SAVED_AT)
            began_at.append(store.steps)
        elif store.steps == SAVED_AT:
            checkpoint.save(lp.current().group_dir, store)
        elif store.steps == KILLED_AT and group.rank == victim and group.generation == 1:
            lp.testing.crash()

    store = train(group, digits, steps, 3, then)
    return Resumed(weights(store), group.generation, began_at[0])


def make_program(n: int, function: Callable[..., object], *args: object) -> lp.Program:
    """Return a graph of n ranks. If one dies, all are started again together."""
    program = lp.Program("zero")
    with program.group("rank", restart=lp.RestartPolicy(scope="group"), preload=[__name__]):
        for _ in range(n):
            program.add_node(lp.CollectiveNode(function, *args))
    return program
