"""Checks of the rules of Chrome's trace events, which Perfetto relies on."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

Event = dict[str, Any]

REQUIRED = {
    "M": {"name", "args"},
    "X": {"name", "cat", "ts", "dur"},
    "b": {"name", "cat", "ts", "id2"},
    "e": {"name", "cat", "ts", "id2"},
    "s": {"name", "cat", "ts", "id"},
    "f": {"name", "cat", "ts", "id", "bp"},
    "i": {"name", "ts", "s"},
}
"""By the phase of an event, what it must have, beside its process and thread."""


def read(path: Path) -> list[Event]:
    """Return the events in a file, after checking that all keep to the rules."""
    events: list[Event] = json.loads(path.read_text())["traceEvents"]
    for event in events:
        assert REQUIRED[event["ph"]] | {"pid", "tid"} <= event.keys(), event
        assert event.get("dur", 0) >= 0, event
    named = {(e["name"], e["pid"], e["tid"]) for e in events if e["ph"] == "M"}
    for event in events:
        assert ("process_name", event["pid"], 0) in named, event
        assert ("thread_name", event["pid"], event["tid"]) in named or event["ph"] == "M", event
    rows = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            rows[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in rows.values():
        _check_nesting(spans)
    _check_pairs(events, "s", "f")
    _check_pairs(events, "b", "e")
    starts = {(e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] == "X"}
    assert {(e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] in "sf"} <= starts
    return events


def flows(events: list[Event]) -> list[tuple[Event, Event]]:
    """Return the spans of each call and of its answer, as the arrows join them."""
    at = {(e["pid"], e["tid"], e["ts"], e["cat"]): e for e in events if e["ph"] == "X"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    joined = []
    for start in events:
        if start["ph"] == "s":
            end = ends[start["id"]]
            place = start["pid"], start["tid"], start["ts"]
            caller = at.get((*place, "call")) or at[*place, "submit"]
            joined.append((caller, at[end["pid"], end["tid"], end["ts"], "answer"]))
    return joined


def process_names(events: list[Event]) -> dict[int, str]:
    """Return the worker that each process stands for."""
    return {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}


def _check_nesting(spans: list[tuple[float, float]]) -> None:
    outer: list[float] = []
    for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        while outer and outer[-1] <= begin + 0.001:  # rounded to ns
            outer.pop()
        assert not outer or end <= outer[-1] + 0.001, (begin, end, outer[-1])
        outer.append(end)


def _check_pairs(events: list[Event], first: str, last: str) -> None:
    begins, ends = (
        {_id(e): e["ts"] for e in events if e["ph"] == phase} for phase in (first, last)
    )
    assert Counter(_id(e) for e in events if e["ph"] in (first, last)) == dict.fromkeys(begins, 2)
    assert all(begins[number] <= ends[number] for number in ends)


def _id(event: Event) -> object:
    return event["id"] if "id" in event else (event["pid"], event["id2"]["local"])
