"""A stage: some layers in a worker, and the micro-batches that come to them and go on.

If a stage dies, all are started again, and go on after the newest batch that all have saved. A late message
of the attempt before does no harm: it has the same key, and the same bits, as the message that comes again.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import launchpad as lp
from examples._shared.data import Array
from examples._shared.logical_time import Event
from examples._shared.problem import Problem
from examples.systems.gpipe.algorithm import Layers, schedule

Key = tuple[str | int, ...]
Neighbour = lp.CourierClient["Stage"] | None


class Run(NamedTuple):
    """A training from the first parameters on. If there is a victim, this stage is killed half-way, once."""

    micro_batches: int
    victim: int | None = None


class Batch(NamedTuple):
    """The state of a stage after a batch."""

    parameters: Array  # after the update
    loss: float  # in the last stage
    peak: int
    trace: list[Event]
    attempt: int


class Stage:
    """Some layers, and the micro-batches that come to them and go on.

    Args:
        problem: The problem, with a network that has only the layers of this stage.
    """

    def __init__(
        self,
        problem: Problem,
        runs: Sequence[Run],
        parameters: Array,
        before: Neighbour,
        after: Neighbour,
    ) -> None:
        self._problem = problem
        self._runs = runs
        self._parameters = parameters
        self._before = before
        self._after = after
        self._inbox = lp.Inbox[Key, Any]()

    def put(self, key: Key, value: Any) -> None:
        """Take activations from the stage before, or gradients from the one after."""
        self._inbox.put(key, (lp.caller().replica_index, value))

    def run(self) -> list[Batch]:
        """Return the last batch of each run."""
        me = lp.current()
        last = list[Batch]()
        begins_at = self._saved_by_all(max(me.saved_versions(), default=0))
        if begins_at:
            last = me.load(version=begins_at)
        for number in range(begins_at, len(self._runs) * self._problem.steps):
            run, step = divmod(number, self._problem.steps)
            parameters = last.pop().parameters if step else self._parameters
            last.append(self._train(number, self._runs[run], step, parameters))
            me.save(last, version=number + 1)
        return last

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
        layers = Layers(self._problem, parameters)
        passes: dict[str, tuple[Callable[[int, Any], Array], Neighbour]] = {
            "forward": (layers.forward, self._after),
            "backward": (layers.backward, self._before),
        }
        self._feed(number, step, run.micro_batches)
        half = self._problem.steps // 2
        me = lp.current()
        is_victim = (me.replica_index, me.attempt, step) == (run.victim, 1, half)
        trace = list[Event]()
        futures = []
        for kind, m in schedule(run.micro_batches):
            sender, received = self._inbox.take((kind, number, m))
            trace.append(Event(kind, m, sender))
            if is_victim and (kind, m) == ("backward", 0):
                lp.testing.crash()
            compute, target = passes[kind]
            value = compute(m, received)
            if target is not None:
                futures.append(lp.submit(target.put, (kind, number, m), value))
        for future in futures:
            future.result()
        gradient = layers.gradient / run.micro_batches
        parameters = parameters - self._problem.learning_rate * gradient
        loss = layers.loss / run.micro_batches
        return Batch(parameters, loss, layers.peak, trace, me.attempt)

    def _feed(self, number: int, step: int, micro_batches: int) -> None:
        """Put the inputs into the first stage's own inbox, and the targets into the last stage's."""
        if self._before is not None and self._after is not None:
            return
        for m, part in enumerate(self._problem.batch(step).parts(micro_batches)):
            if self._before is None:
                self._inbox.put(("forward", number, m), (None, part.inputs))
            if self._after is None:
                self._inbox.put(("backward", number, m), (None, part))
