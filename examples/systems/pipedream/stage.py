"""A worker of the pipeline: takes what comes for it in the order of its schedule, computes, sends on.

If one dies, all go back to the newest minibatch at which each had saved its weights and what was in flight.
What they then send again is what they sent before, so no bit of the result changes.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import launchpad as lp
from examples._shared import networks
from examples._shared.digits import Array, Digits
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
SAVE_EVERY = 12  # minibatches: whole rounds of 1 to 4 replicas, and more than are in flight


def worker_of(plan: Plan, stage: int, minibatch: int) -> int | None:
    """Return which of all workers does a minibatch in a stage, by turns; None beyond both ends."""
    first = sum(part.replicas for part in plan[: max(stage, 0)])
    return first + minibatch % plan[stage].replicas if 0 <= stage < len(plan) else None


class Stage:
    """One replica of a stage of the plan; of all minibatches it does `mine`."""

    def __init__(
        self,
        plan: Plan,
        stage: int,
        mine: range,
        layers: Layers,
        digits: Digits,
        workers: Sequence["lp.CourierClient[Stage]"],
    ) -> None:
        self._plan, self._stage, self._mine = plan, stage, mine
        self._layers, self._digits, self._workers = layers, digits, workers
        self._inbox = lp.Inbox[tuple[str, int], Any]()
        self._saved = max(lp.current().saved_versions(), default=0)

    @lp.idempotent  # what comes twice is the same twice
    def put(self, key: tuple[str, int], value: object) -> None:
        self._inbox.put(key, value)

    @lp.idempotent
    def saved(self) -> int:
        """After how many minibatches this worker had saved itself when it was started."""
        return self._saved

    def run(self) -> tuple[Layers, int, list[Event]]:
        """Train from where all have saved themselves; returns the layers, the attempt, and the trace."""
        me, events = lp.current(), []
        done = min(lp.broadcast(self._workers).saved())
        self._layers = me.load(version=done) if done else self._layers
        for minibatch in self._layers.in_flight:
            self._send_outputs(minibatch)  # the next stage may have saved itself before they came
        depth = in_flight(self._plan, self._stage)
        for kind, minibatch in schedule(self._mine, depth, done // self._mine.step):
            source = self._stage - 1 if kind == FORWARD else self._stage + 1
            sender = worker_of(self._plan, source, minibatch)
            received = None if sender is None else self._inbox.take((kind, minibatch))
            events.append(Event(kind, minibatch, sender))
            if kind == FORWARD:
                inputs = received or (self._digits.batch(minibatch, BATCH).images, math.inf)
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
        if (receiver := worker_of(self._plan, stage, turn)) is not None:
            self._workers[receiver].put(key, value)
