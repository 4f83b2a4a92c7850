"""The logical time of a training: a gradient takes one unit, a slow one several, and a pull one.

    worker ──ask─▶ its link ──pull, once all have pushed that must have─▶ worker ──push─▶ all links

See examples/_shared/logical_time.py.
"""

from collections.abc import Sequence

from examples._shared import logical_time
from examples._shared.logical_time import Event
from examples.systems.angel.worker import SLOW, Trained

COSTS = {"quick": 1, "slow": SLOW}


def makespan(trained: Sequence[Trained], staleness: float, overlaps: bool = True) -> int:
    """Return when the last worker ends. Without overlap, a worker asks for a pull after its last push."""
    traces = [worker.trace for worker in trained]
    n = len(traces)
    links = [link(worker, n, trace, staleness, overlaps) for worker, trace in enumerate(traces)]

    def cost(worker: int, kind: str) -> int:
        if worker < n:
            return COSTS.get(kind, 0)
        return int(kind == "pull")

    return int(max(spans[-1].end for spans in logical_time.replay([*traces, *links], cost)))


def link(
    worker: int, workers: int, trace: Sequence[Event], staleness: float, overlaps: bool
) -> list[Event]:
    """Return the events that the pulls of a worker wait for."""
    events: list[Event] = []
    for clock in (event.item for event in trace if event.kind == "pull"):
        last_push = (clock - 1) * workers + worker
        if overlaps or clock == 0:
            events.append(Event("ask", clock, worker))
        else:
            events.append(Event("push", last_push, worker))
        last_clock = clock - staleness - 1  # the last clock at which all must have pushed
        if last_clock >= 0:
            first_item = int(last_clock) * workers
            events += [Event("push", first_item + sender, sender) for sender in range(workers)]
        events.append(Event("pull", clock))
    return events
