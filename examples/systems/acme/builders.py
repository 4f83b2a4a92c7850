"""The parts of each agent, in one process and in many."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import launchpad as lp
from examples.systems.acme import dqn, impala
from examples.systems.acme.algorithm import Actor, Learner
from examples.systems.acme.replay import LocalReplay, make_table
from examples.systems.acme.variable_client import VariableClient

QUEUE_SIZE = 8


class LocalQueue:
    """A queue with the methods of lp.Queue that agents use. It never waits: actor and learner take turns."""

    def __init__(self, seed: int) -> None:
        self._unrolls: deque[impala.Unroll] = deque()
        self.put = self._unrolls.append
        self.get = self._unrolls.popleft

    def can_sample(self) -> bool:
        return len(self._unrolls) >= impala.BATCH


@dataclass(frozen=True)
class Builder:
    """An agent as functions that make its parts, like a builder of Acme's.

    Attributes:
        make_learner: Makes the learner from the experience that it learns from, and the seed.
        make_actor: Makes an actor from its variables, the experience that it adds to, and the seed.
        make_node: Makes the node of the experience, which workers share.
        make_local: Makes the experience for one process.
        report: Returns the statistics of the shared experience.
    """

    make_learner: Callable[[Any, int], Learner]
    make_actor: Callable[[VariableClient, Any, int], Actor]
    make_node: Callable[[], lp.Node[Any]]
    make_local: Callable[[int], Any]
    report: Callable[[Any], Any]


BUILDERS = {
    "dqn": Builder(
        dqn.DQNLearner,
        dqn.DQNActor,
        lambda: lp.ReplayNode([make_table()]),
        LocalReplay,
        lambda replay: replay.info()["transitions"],
    ),
    "impala": Builder(
        impala.ImpalaLearner,
        impala.ImpalaActor,
        lambda: lp.QueueNode(maxsize=QUEUE_SIZE),
        LocalQueue,
        lambda queue: queue.stats(),
    ),
}
