"""A chain of stages, a worker each: activations of micro-batches go up it, and their gradients come down.

    stage 0 ──activations──▶ stage 1 ──▶ … ──▶ stage K−1
            ◀───gradients───         ◀── … ◀──

If a stage dies, all are started again, and go on after the newest batch that all have saved. A message of the
attempt before could do no harm: it has the key, and all bits, of the one that comes again.
"""

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

import launchpad as lp
from examples._shared import networks
from examples._shared.digits import Array, Digits
from examples.gpipe.algorithm import Layers, costs, cut, schedule
from examples.gpipe.logical_time import Event

Neighbour = lp.CourierClient["Stage"] | None


@dataclass(frozen=True)
class Training:
    """What is trained, and how."""

    digits: Digits
    steps: int
    widths: tuple[int, ...] = (64, 48, 40, 32, 32, 24, 24, 16, 10)
    batch_size: int = 64
    learning_rate: float = 0.1

    def batch(self, step: int) -> Digits:
        return self.digits.batch(step, self.batch_size)

    def cut(self, stages: int) -> list[tuple[int, int]]:
        """Return each stage's first layer, and where its layers end."""
        return list(pairwise(cut(costs(self.widths), stages)))


class Run(NamedTuple):
    """A training from the first parameters on; a stage may be killed in it."""

    micro_batches: int
    rematerializes: bool
    is_disturbed: bool = False


class Batch(NamedTuple):
    """What a stage has of a batch that is done."""

    gradient: Array
    parameters: Array  # after the update
    peak: int
    trace: list[Event]
    waited: float  # the share of its time


class Stage:
    """Some layers, and the micro-batches that come to them and go on."""

    def __init__(
        self,
        training: Training,
        runs: Sequence[Run],
        widths: networks.Widths,
        parameters: Array,
        before: Neighbour,
        after: Neighbour,
    ) -> None:
        self._training, self._runs, self._widths = training, runs, widths
        self._parameters, self._before, self._after = parameters, before, after
        self._inbox = lp.Inbox[tuple[str | int, ...], Any]()

    def put(self, key: tuple[str | int, ...], value: Any) -> None:
        """Take activations from the stage before, or gradients from the one after."""
        self._inbox.put(key, (lp.caller().replica_index, value))

    def run(self) -> tuple[list[Batch], int]:
        """Return the last batch of each run, and which attempt this is."""
        me, last = lp.current(), list[Batch]()
        if begins_at := self._saved_by_all(max(me.saved_versions(), default=0)):
            last = me.load(version=begins_at)
        for number in range(begins_at, len(self._runs) * self._training.steps):
            run, step = divmod(number, self._training.steps)
            parameters = last.pop().parameters if step else self._parameters
            last.append(self._train(number, self._runs[run], step, parameters))
            me.save(last, version=number + 1)
        return last, me.attempt

    def _saved_by_all(self, newest: int) -> int:
        """Return the least of all stages' numbers, which goes up the chain, and comes down."""
        up, down = ("newest", lp.current().attempt), ("newest of all", lp.current().attempt)
        if self._before is not None:
            newest = min(newest, self._inbox.take(up)[1])
        if self._after is not None:
            self._after.put(up, newest)
            newest = self._inbox.take(down)[1]
        if self._before is not None:
            self._before.put(down, newest)
        return newest

    def _train(self, number: int, run: Run, step: int, parameters: Array) -> Batch:
        """Let all micro-batches go forward, let all come back, and update the parameters once."""
        layers = Layers(self._widths, parameters, self._after is None, run.rematerializes)
        passes: dict[str, tuple[Callable[[int, Any], Array], Neighbour]] = {
            "forward": (layers.forward, self._after),
            "backward": (layers.backward, self._before),
        }
        self._feed(number, self._training.batch(step), run.micro_batches)
        began, waited, trace, sent = time.perf_counter(), 0.0, list[Event](), []
        for kind, m in schedule(run.micro_batches):
            asked = time.perf_counter()
            sender, received = self._inbox.take((kind, number, m))
            waited += time.perf_counter() - asked
            trace.append(Event(kind, m, sender))
            if run.is_disturbed and (kind, m, step) == ("backward", 0, 1):
                die()
            compute, target = passes[kind]
            made = compute(m, received)
            if target is not None:
                sent.append(target.futures.put((kind, number, m), made))
        for future in sent:
            future.result()
        gradient = layers.gradient / run.micro_batches
        parameters = parameters - self._training.learning_rate * gradient
        waited /= time.perf_counter() - began
        return Batch(gradient, parameters, layers.peak, trace, waited)

    def _feed(self, number: int, batch: Digits, micro_batches: int) -> None:
        """Put in its own inbox what no other stage sends: images at one end of the chain, digits at the other."""
        size = len(batch) // micro_batches
        for m in range(micro_batches):
            part = batch[m * size : (m + 1) * size]
            if self._before is None:
                self._inbox.put(("forward", number, m), (None, part.images))
            if self._after is None:
                self._inbox.put(("backward", number, m), (None, part))


def die() -> None:
    """Die as the third of four stages, once."""
    me = lp.current()
    if (me.replica_index, me.attempt) != (2, 1):
        return
    if me.launch_type.endswith("mt"):
        raise RuntimeError("killed on purpose")  # a thread cannot be killed
    os.kill(os.getpid(), signal.SIGKILL)


def make_program(training: Training, runs: Sequence[Run], stages: int) -> lp.Program:
    """Return the graph: a chain of stages, each with a cut of the layers."""
    bounds = training.cut(stages)
    first = networks.matrices(training.widths, networks.first_parameters(training.widths))
    nodes = [lp.CourierNode(Stage) for _ in bounds]
    handles = [None, *(node.create_handle() for node in nodes), None]
    for i, (begin, end) in enumerate(bounds):
        parameters = np.concatenate([matrix.ravel() for matrix in first[begin:end]])
        widths = training.widths[begin : end + 1]
        nodes[i].configure(training, runs, widths, parameters, handles[i], handles[i + 2])
    program = lp.Program("gpipe")
    again = lp.RestartPolicy(scope="group")
    with program.group("stage", restart=again, serves_until="group"):
        for node in nodes:
            program.add_node(node)
    return program
