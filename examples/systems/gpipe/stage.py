"""A stage: some layers in a worker, and the micro-batches that come to them and go on.

If a stage dies, all are started again, and go on after the newest batch that all have saved. A message of the
attempt before could do no harm: it has the key, and all bits, of the one that comes again.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import launchpad as lp
from examples._shared.digits import Array, Digits
from examples._shared.logical_time import Event
from examples._shared.networks import Widths
from examples.systems.gpipe.algorithm import Layers, schedule
from examples.systems.gpipe.training import Run, Training

Key = tuple[str | int, ...]
Neighbour = lp.CourierClient["Stage"] | None


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
        widths: Widths,
        parameters: Array,
        before: Neighbour,
        after: Neighbour,
    ) -> None:
        self._training, self._runs, self._widths = training, runs, widths
        self._parameters, self._before, self._after = parameters, before, after
        self._inbox = lp.Inbox[Key, Any]()

    def put(self, key: Key, value: Any) -> None:
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
        half = self._training.steps // 2
        began, waited, trace, sent = time.perf_counter(), 0.0, list[Event](), []
        for kind, m in schedule(run.micro_batches):
            asked = time.perf_counter()
            sender, received = self._inbox.take((kind, number, m))
            waited += time.perf_counter() - asked
            trace.append(Event(kind, m, sender))
            if run.is_disturbed and (kind, m, step) == ("backward", 0, half) and is_victim():
                lp.testing.crash()
            compute, target = passes[kind]
            made = compute(m, received)
            if target is not None:
                sent.append(lp.submit(target.put, (kind, number, m), made))
        for future in sent:
            future.result()
        gradient = layers.gradient / run.micro_batches
        parameters = parameters - self._training.learning_rate * gradient
        waited /= time.perf_counter() - began
        return Batch(gradient, parameters, layers.peak, trace, waited)

    def _feed(self, number: int, batch: Digits, micro_batches: int) -> None:
        """Put into its own inbox what no other stage sends: images at one end, digits at the other."""
        size = len(batch) // micro_batches
        for m in range(micro_batches):
            part = batch[m * size : (m + 1) * size]
            if self._before is None:
                self._inbox.put(("forward", number, m), (None, part.images))
            if self._after is None:
                self._inbox.put(("backward", number, m), (None, part))


def is_victim() -> bool:
    """Return whether this is the third of four stages, which is killed once."""
    me = lp.current()
    return (me.replica_index, me.attempt) == (2, 1)
