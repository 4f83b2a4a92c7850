"""A stage: some layers in a worker, and the micro-batches that come to them and go on.

If a stage dies, all are started again, and go on after the newest batch that all have saved. A late message
of
the attempt before does no harm: it has the same key, and the same bits, as the message that comes again.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import launchpad as lp
from examples._shared.data import Array, Data
from examples._shared.logical_time import Event
from examples._shared.networks import Widths
from examples.systems.gpipe.algorithm import Layers, schedule
from examples.systems.gpipe.training import Run, Training

Key = tuple[str | int, ...]
Neighbour = lp.CourierClient["Stage"] | None


class Batch(NamedTuple):
    """The state of a stage after a batch."""

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
        self._training = training
        self._runs = runs
        self._widths = widths
        self._parameters = parameters
        self._before = before
        self._after = after
        self._inbox = lp.Inbox[Key, Any]()

    def put(self, key: Key, value: Any) -> None:
        """Take activations from the stage before, or gradients from the one after."""
        self._inbox.put(key, (lp.caller().replica_index, value))

    def run(self) -> tuple[list[Batch], int]:
        """Return the last batch of each run, and the number of this attempt."""
        me = lp.current()
        last = list[Batch]()
        begins_at = self._saved_by_all(max(me.saved_versions(), default=0))
        if begins_at:
            last = me.load(version=begins_at)
        for number in range(begins_at, len(self._runs) * self._training.steps):
            run, step = divmod(number, self._training.steps)
            parameters = last.pop().parameters if step else self._parameters
            last.append(self._train(number, self._runs[run], step, parameters))
            me.save(last, version=number + 1)
        return last, me.attempt

    def _saved_by_all(self, newest: int) -> int:
        """Return the smallest number of all stages. It goes up the chain, and comes down again."""
        up = ("newest", lp.current().attempt)
        down = ("newest of all", lp.current().attempt)
        if self._before is not None:
            newest = min(newest, self._inbox.take(up)[1])
        if self._after is not None:
            self._after.put(up, newest)
            newest = self._inbox.take(down)[1]
        if self._before is not None:
            self._before.put(down, newest)
        return newest

    def _train(self, number: int, run: Run, step: int, parameters: Array) -> Batch:
        """Send all micro-batches forward and back, then update the parameters once."""
        layers = Layers(self._widths, parameters, self._after is None, run.rematerializes)
        passes: dict[str, tuple[Callable[[int, Any], Array], Neighbour]] = {
            "forward": (layers.forward, self._after),
            "backward": (layers.backward, self._before),
        }
        self._feed(number, self._training.batch(step), run.micro_batches)
        half = self._training.steps // 2
        began = time.perf_counter()
        waited = 0.0
        trace = list[Event]()
        futures = []
        for kind, m in schedule(run.micro_batches):
            asked_at = time.perf_counter()
            sender, received = self._inbox.take((kind, number, m))
            waited += time.perf_counter() - asked_at
            trace.append(Event(kind, m, sender))
            if run.is_disturbed and (kind, m, step) == ("backward", 0, half) and is_victim():
                lp.testing.crash()
            compute, target = passes[kind]
            value = compute(m, received)
            if target is not None:
                futures.append(lp.submit(target.put, (kind, number, m), value))
        for future in futures:
            future.result()
        gradient = layers.gradient / run.micro_batches
        parameters = parameters - self._training.learning_rate * gradient
        waited /= time.perf_counter() - began
        return Batch(gradient, parameters, layers.peak, trace, waited)

    def _feed(self, number: int, batch: Data, micro_batches: int) -> None:
        """Put the images into the first stage's own inbox, and the digits into the last stage's."""
        size = len(batch) // micro_batches
        for m in range(micro_batches):
            part = batch[m * size : (m + 1) * size]
            if self._before is None:
                self._inbox.put(("forward", number, m), (None, part.inputs))
            if self._after is None:
                self._inbox.put(("backward", number, m), (None, part))


def is_victim() -> bool:
    """True if this is the third of four stages, in its first attempt: that one is killed."""
    me = lp.current()
    return (me.replica_index, me.attempt) == (2, 1)
