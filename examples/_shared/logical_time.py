"""Logical time: when each event would happen, if only the events themselves took time.

Each worker writes down its own events in order. In a replay an event starts when two others have ended: the
event before it in the same worker, and the event that sent the message that it waited for. No clock is read,
so the answer is exact, and the same on a busy machine.

Source: Lamport 1978, Time, Clocks, and the Ordering of Events in a Distributed System.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple


class Event(NamedTuple):
    """A piece of work, such as ("forward", 3). No other event of the same worker is equal to it."""

    kind: str
    item: int
    received_from: int | None = None
    """The worker that sent what this event waited for, in an event of the same kind and item."""


class Span(NamedTuple):
    """The start and the end of an event."""

    start: Fraction
    end: Fraction


Traces = Sequence[Sequence[Event]]
Spans = Sequence[Sequence[Span]]


def replay(traces: Traces, cost: Callable[[int, str], int | Fraction] = lambda *_: 1) -> Spans:
    """Return the span of each event, by worker; `cost(worker, kind)` is how long it takes."""
    spans: list[list[Span]] = [[] for _ in traces]
    ends: dict[tuple[int | None, str, int], Fraction] = {}
    while True:
        pending = [w for w, trace in enumerate(traces) if len(spans[w]) < len(trace)]
        if not pending:
            return spans
        n_before = len(ends)
        for worker in pending:
            kind, item, sender = traces[worker][len(spans[worker])]
            if sender is None or (sender, kind, item) in ends:
                own = spans[worker][-1].end if spans[worker] else Fraction(0)
                start = max(own, ends.get((sender, kind, item), own))
                spans[worker].append(Span(start, start + cost(worker, kind)))
                ends[worker, kind, item] = spans[worker][-1].end
        if len(ends) == n_before:
            waiting = [f"{traces[w][len(spans[w])]} of worker {w}" for w in pending]
            raise ValueError(f"nothing sends what these wait for: {', '.join(waiting)}")


def idle(spans: Spans) -> Fraction:
    """Return the share of time in which workers wait, of all workers' time until the last one ends."""
    makespan = max(of_worker[-1].end for of_worker in spans)
    busy = sum(end - start for of_worker in spans for start, end in of_worker)
    return 1 - Fraction(busy) / (makespan * len(spans))
