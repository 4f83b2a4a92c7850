"""How long a training takes in logical time: a unit for a gradient, several for a slow one, one for a pull.

    worker ──ask─▶ its link ──pull, once all have pushed that must have─▶ worker ──push─▶ all links

See examples/_shared/logical_time.py.
"""

from collections.abc import Sequence

from examples._shared import logical_time
from examples._shared.logical_time import Event
from examples.systems.angel.worker import SLOW, Trained

COSTS = {"quick": 1, "slow": SLOW}


def makespan(trained: Sequence[Trained], staleness: float, overlaps: bool = True) -> int:
    """Return when the last worker ends; without overlap a pull is asked for after the push before it."""
    traces = [worker.trace for worker in trained]
    n = len(traces)
    links = [link(worker, n, trace, staleness, overlaps) for worker, trace in enumerate(traces)]

    def cost(worker: int, kind: str) -> int:
        return COSTS.get(kind, 0) if worker < n else int(kind == "pull")

    return int(max(spans[-1].end for spans in logical_time.replay([*traces, *links], cost)))


def link(
    worker: int, workers: int, trace: Sequence[Event], staleness: float, overlaps: bool
) -> list[Event]:
    """Return what the pulls of a worker wait for."""
    events: list[Event] = []
    for clock in (event.item for event in trace if event.kind == "pull"):
        last_push = (clock - 1) * workers + worker
        events.append(
            Event("ask", clock, worker)
            if overlaps or clock == 0
            else Event("push", last_push, worker)
        )
        needed = clock - staleness - 1  # the last clock at which all must have pushed
        if needed >= 0:
            items = [int(needed) * workers + other for other in range(workers)]
            events += [Event("push", item, other) for other, item in enumerate(items)]
        events.append(Event("pull", clock))
    return events
