"""Logical time: when each event would be, if nothing took time but the events and the messages they wait for.

Each worker writes down its own events in order. Replayed, an event starts when the one before it in its
worker has ended, and so has the one that sent what it waited for. No clock is read: the answer is exact, and
the same on a busy machine.

Source: Lamport 1978, Time, Clocks, and the Ordering of Events in a Distributed System.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple


class Event(NamedTuple):
    """A piece of work, as ("forward", 3); unique in its worker."""

    kind: str
    item: int
    received_from: int | None = None
    """The worker whose event of the same kind and item sent what this one waited for."""


class Span(NamedTuple):
    """When an event starts and ends."""

    start: Fraction
    end: Fraction


Traces = Sequence[Sequence[Event]]
Spans = Sequence[Sequence[Span]]


def replay(traces: Traces, cost: Callable[[int, str], int | Fraction] = lambda *_: 1) -> Spans:
    """Return the span of each event, by worker; `cost(worker, kind)` is how long it takes."""
    spans: list[list[Span]] = [[] for _ in traces]
    ends: dict[tuple[int | None, str, int], Fraction] = {}
    while pending := [w for w, trace in enumerate(traces) if len(spans[w]) < len(trace)]:
        found = len(ends)
        for worker in pending:
            kind, item, sender = traces[worker][len(spans[worker])]
            if sender is None or (sender, kind, item) in ends:
                own = spans[worker][-1].end if spans[worker] else Fraction(0)
                start = max(own, ends.get((sender, kind, item), own))
                spans[worker].append(Span(start, start + cost(worker, kind)))
                ends[worker, kind, item] = spans[worker][-1].end
        if len(ends) == found:
            waiting = [f"{traces[w][len(spans[w])]} of worker {w}" for w in pending]
            raise ValueError(f"nothing sends what these wait for: {', '.join(waiting)}")
    return spans


def idle(spans: Spans) -> Fraction:
    """Return the share of all workers' time, until the last of them ends, in which they only wait."""
    makespan = max(of_worker[-1].end for of_worker in spans)
    busy = sum(end - start for of_worker in spans for start, end in of_worker)
    return 1 - Fraction(busy) / (makespan * len(spans))
