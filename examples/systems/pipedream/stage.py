"""A worker of the pipeline: it takes values in the order of its schedule, computes, and sends results on.

If a worker dies, all go back to the newest minibatch at which each of them had saved its weights and its
minibatches in flight. They then send the same values again, so no bit of the result changes.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import launchpad as lp
from examples._shared import networks
from examples._shared.data import Array, Data
from examples._shared.logical_time import Event
from examples.systems.pipedream.algorithm import (
    BACKWARD,
    FORWARD,
    Layers,
    Plan,
    in_flight,
    schedule,
)

AVERAGE = "average"
BATCH = 32
SAVE_EVERY = 12  # minibatches: whole rounds for 1 to 4 replicas, and more than are in flight


def worker_of(plan: Plan, stage: int, minibatch: int) -> int | None:
    """Return the number of the worker that handles a minibatch in a stage; None if there is no such stage."""
    if not 0 <= stage < len(plan):
        return None
    first = sum(part.replicas for part in plan[:stage])
    return first + minibatch % plan[stage].replicas


class Stage:
    """One replica of a stage of the plan; `mine` are its minibatches."""

    def __init__(
        self,
        plan: Plan,
        stage: int,
        mine: range,
        layers: Layers,
        digits: Data,
        workers: Sequence["lp.CourierClient[Stage]"],
    ) -> None:
        self._plan = plan
        self._stage = stage
        self._mine = mine
        self._layers = layers
        self._digits = digits
        self._workers = workers
        self._inbox = lp.Inbox[tuple[str, int], Any]()
        self._saved = max(lp.current().saved_versions(), default=0)

    @lp.idempotent  # a value that comes twice is the same both times
    def put(self, key: tuple[str, int], value: object) -> None:
        self._inbox.put(key, value)

    @lp.idempotent
    def saved(self) -> int:
        """Return the number of minibatches in the newest state that was saved before this worker started."""
        return self._saved

    def run(self) -> tuple[Layers, int, list[Event]]:
        """Train from the point that all workers have saved. Return the layers, the attempt, and the trace."""
        me = lp.current()
        events = []
        n_done = min(lp.broadcast(self._workers).saved())
        self._layers = me.load(version=n_done) if n_done else self._layers
        for minibatch in self._layers.in_flight:
            self._send_outputs(minibatch)  # the next stage may have saved itself before these came
        depth = in_flight(self._plan, self._stage)
        for kind, minibatch in schedule(self._mine, depth, n_done // self._mine.step):
            source = self._stage - 1 if kind == FORWARD else self._stage + 1
            sender = worker_of(self._plan, source, minibatch)
            received = None if sender is None else self._inbox.take((kind, minibatch))
            events.append(Event(kind, minibatch, sender))
            if kind == FORWARD:
                inputs = received or (self._digits.batch(minibatch, BATCH).inputs, math.inf)
                self._layers.forward(minibatch, *inputs)
                self._send_outputs(minibatch)
            else:
                self._backward(minibatch, received)
        return self._layers, me.attempt, events

    def _send_outputs(self, minibatch: int) -> None:
        version, values = self._layers.in_flight[minibatch]
        self._send(self._stage + 1, minibatch, (FORWARD, minibatch), (values[-1], version))

    def _backward(self, minibatch: int, gradient: Array | None) -> None:
        if gradient is None:
            scores = self._layers.in_flight[minibatch][1][-1]
            gradient = networks.cross_entropy(scores, self._digits.batch(minibatch, BATCH))[1]
        gradient, own = self._layers.backward(minibatch, gradient)
        self._send(self._stage - 1, minibatch, (BACKWARD, minibatch), gradient)
        first = minibatch - self._mine.start
        turns = range(first, first + self._mine.step)
        for turn in turns:
            if turn != minibatch:
                self._send(self._stage, turn, (AVERAGE, minibatch), own)
        self._inbox.put((AVERAGE, minibatch), own)
        gradients = [self._inbox.take((AVERAGE, turn)) for turn in turns]
        self._layers.update(np.mean(gradients, axis=0), version=turns.stop)
        if turns.stop % SAVE_EVERY == 0:
            lp.current().save(self._layers, version=turns.stop)

    def _send(self, stage: int, turn: int, key: tuple[str, int], value: object) -> None:
        receiver = worker_of(self._plan, stage, turn)
        if receiver is not None:
            self._workers[receiver].put(key, value)
