"""A worker of the pipeline: it takes values in the order of its schedule, computes, and sends results on.

If a worker dies, all go back to the newest minibatch at which each of them had saved its weights and its
minibatches in flight. They then send the same values again, so no bit of the result changes.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import launchpad as lp
from examples._shared.data import Array
from examples._shared.logical_time import Event
from examples._shared.problem import Problem
from examples.systems.pipedream.algorithm import Layers, Plan, in_flight, schedule

Workers = Sequence["lp.CourierClient[Stage]"]


def parameters_of(workers: Sequence[Layers]) -> Array:
    """Return the parameters of the network, from the results of all workers."""
    return np.concatenate(list({layers.stage: layers.weights for layers in workers}.values()))


def worker_of(plan: Plan, stage: int, minibatch: int) -> int | None:
    """Return the number of the worker that handles a minibatch in a stage; None if there is no such stage."""
    if not 0 <= stage < len(plan):
        return None
    first = sum(part.replicas for part in plan[:stage])
    return first + minibatch % plan[stage].replicas


class Stage:
    """One replica of a stage of the plan. Its network has only the layers of this stage."""

    def __init__(
        self, problem: Problem, plan: Plan, layers: Layers, workers: Workers, killed_at: int | None
    ) -> None:
        self._problem = problem
        self._plan = plan
        self._layers = layers
        replica = lp.current().replica_index - sum(n for _, n in plan[: layers.stage])
        self._mine = range(replica, problem.steps, plan[layers.stage].replicas)
        self._workers = workers
        self._killed_at = killed_at
        self._inbox = lp.Inbox[tuple[str, int], Any]()
        self._saved = max(lp.current().saved_versions(), default=0)
        # Whole rounds of all replicas, and more minibatches than are in flight.
        rounds = math.lcm(*(part.replicas for part in plan))
        self._save_every = rounds * math.ceil(12 / rounds)

    @lp.idempotent  # a value that comes twice is the same both times
    def put(self, key: tuple[str, int], value: object) -> None:
        self._inbox.put(key, value)

    @lp.idempotent
    def saved(self) -> int:
        """Return the number of minibatches in the newest state that was saved before this worker started."""
        return self._saved

    def run(self) -> Layers:
        """Train from the minibatch that all workers have saved."""
        n_done = min(lp.broadcast(self._workers).saved())
        if n_done:
            self._layers = lp.current().load(version=n_done)
            self._layers.n_resumed = n_done
        for minibatch in self._layers.in_flight:
            self._send_outputs(minibatch)  # the next stage may have saved itself before these came
        stage = self._layers.stage
        depth = in_flight(self._plan, stage)
        for kind, minibatch in schedule(self._mine, depth, n_done // self._mine.step):
            source = stage - 1 if kind == "forward" else stage + 1
            sender = worker_of(self._plan, source, minibatch)
            received: Any = None if sender is None else self._inbox.take((kind, minibatch))
            self._layers.trace.append(Event(kind, minibatch, sender))
            if kind == "forward":
                inputs = self._problem.batch(minibatch).inputs if sender is None else received
                self._layers.forward(minibatch, inputs)
                self._send_outputs(minibatch)
            else:
                self._backward(minibatch, received)
        return self._layers

    def _send_outputs(self, minibatch: int) -> None:
        outputs = self._layers.in_flight[minibatch][1][-1]
        self._send(self._layers.stage + 1, minibatch, ("forward", minibatch), outputs)

    def _backward(self, minibatch: int, gradient: Array | None) -> None:
        if minibatch == self._killed_at and lp.current().attempt == 1:
            lp.testing.crash()
        layers = self._layers
        if gradient is None:
            outputs = layers.in_flight[minibatch][1][-1]
            batch = self._problem.batch(minibatch)
            loss, gradient = self._problem.loss_function(outputs, batch)
            layers.losses.append(loss)
        gradient, own = layers.backward(minibatch, gradient)
        self._send(layers.stage - 1, minibatch, ("backward", minibatch), gradient)
        first = minibatch - self._mine.start
        turns = range(first, first + self._mine.step)
        for turn in turns:
            self._send(layers.stage, turn, ("average", minibatch), own)
        gradients = [self._inbox.take(("average", turn)) for turn in turns]
        change = -self._problem.learning_rate * np.mean(gradients, axis=0)
        layers.update(change, version=turns.stop)
        if turns.stop % self._save_every == 0:
            lp.current().save(layers, version=turns.stop)

    def _send(self, stage: int, turn: int, key: tuple[str, int], value: object) -> None:
        receiver = worker_of(self._plan, stage, turn)
        if receiver == lp.current().replica_index:
            self._inbox.put(key, value)
        elif receiver is not None:
            self._workers[receiver].put(key, value)
