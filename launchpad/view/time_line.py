"""Time lines: what the workers of a program did at which time, in a row for each worker.

RunHistory ── of_attempts ─┐
Trace      ── of_calls    ─┴─▶ TimeLine ── markup() ──▶ HTML
"""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from launchpad.courier.formatting import seconds
from launchpad.launch.rundir.history import AttemptRecord, RunHistory
from launchpad.telemetry.trace import Trace

MOST_ROWS = 40
_MOST_BARS = 4_000
_PIXELS = 800
"""The assumed width of the picture. Bars that are less than one pixel apart are drawn as one bar."""

_TICKS = 4
_DAY_S = 86_400
_LANES = {
    "call": (0, "call"),
    "submit": (0, "call"),
    "future": (0, "call"),
    "wait": (0, "wait"),
    "answer": (1, "answer"),
    "coroutine": (1, "answer"),
}
"""Maps the category of a trace's event to its lane, and the class of its style."""


@dataclass(frozen=True)
class Bar:
    """A bar between two times, by the clock of its time line.

    Attributes:
        look: The class of its style.
        text: The text inside the bar, as far as there is room.
        title: The text that is shown while the mouse is over the bar.
    """

    began: float
    ended: float
    look: str
    title: str
    text: str = ""


@dataclass(frozen=True)
class Row:
    """A worker and its bars, with a lane for each kind of bar."""

    worker: str
    lanes: Sequence[Sequence[Bar]]


@dataclass(frozen=True)
class TimeLine:
    """A time line: rows by the same clock.

    Attributes:
        tick: A function that formats a time.
        looks: Maps each class of style to its meaning, for the legend.
        note: A sentence about what is not shown. Empty if everything is shown.
    """

    rows: Sequence[Row]
    began: float
    ended: float
    tick: Callable[[float], str]
    looks: Mapping[str, str]
    note: str = ""

    def markup(self, name: str, href: Callable[[str], str]) -> str:
        """Return the time line as HTML.

        Args:
            name: The id of its HTML element.
            href: A function that returns the path of a worker's page.
        """
        length = self.ended - self.began
        times = [self.began + length * number / _TICKS for number in range(_TICKS + 1)]
        ticks = "".join(
            f'<span style="left:{100 * n / _TICKS:g}%">{html.escape(self.tick(at))}</span>'
            for n, at in enumerate(times)
        )
        legend = "".join(
            f'<span><i class="{look}"></i>{html.escape(meaning)}</span>'
            for look, meaning in self.looks.items()
        )
        rows = "".join(
            f'<a href="{html.escape(href(row.worker))}">{html.escape(row.worker)}</a>'
            f"<div>{''.join(self._lane(lane) for lane in row.lanes if lane)}</div>"
            for row in self.rows
        )
        return (
            f'<div class="legend">{legend}</div>'
            f'<div class="time-line" id="{name}"><b></b><div class="ticks">{ticks}</div>{rows}</div>'
            f"<p>{html.escape(self.note)}</p>"
        )

    def _lane(self, bars: Sequence[Bar]) -> str:
        length = max(self.ended - self.began, 1e-9)
        return (
            '<div class="lane">'
            + "".join(
                f'<i class="{bar.look}" title="{html.escape(bar.title)}" style="left:'
                f"{100 * (bar.began - self.began) / length:.3f}%;"
                f'width:{100 * (bar.ended - bar.began) / length:.3f}%">{html.escape(bar.text)}</i>'
                for bar in bars
            )
            + "</div>"
        )


def of_attempts(history: RunHistory, now: float, *, has_ended: bool) -> TimeLine:
    """Return a time line of attempts, by the wall clock.

    Workers with failures are first, followed by workers with restarts.

    Args:
        now: The current time, in seconds since 1970.
        has_ended: True if the run has ended. In this case, the time line ends with the last known event.
    """
    by_worker: dict[str, list[AttemptRecord]] = {}
    times: list[float] = []
    for attempt in history.attempts:
        by_worker.setdefault(attempt.worker, []).append(attempt)
        times.append(attempt.began)
        if attempt.ended is not None:
            times.append(attempt.ended)
    began = min(times, default=now)
    end = max([*times, history.ended or 0.0]) if has_ended else now
    order = sorted(by_worker, key=lambda worker: _unrest(by_worker[worker]))
    rows = []
    for worker in order[:MOST_ROWS]:
        bars = [bar for attempt in by_worker[worker] for bar in _of_attempt(attempt, end)]
        rows.append(Row(worker, [bars]))
    n_more = len(order) - len(rows)
    looks = {
        "starting": "starting",
        "running": "running",
        "succeeded": "succeeded",
        "stopped": "stopped, or restarted on request",
        "failed": "failed",
        "lost": "lost",
    }
    note = ""
    if n_more:
        note = f"{n_more} more workers are not shown: those with failures and restarts are"
    form = "%H:%M:%S" if end - began < _DAY_S else "%m-%d %H:%M"
    return TimeLine(
        rows, began, end, lambda at: time.strftime(form, time.localtime(at)), looks, note
    )


def _unrest(attempts: Sequence[AttemptRecord]) -> tuple[int, int]:
    """Return a sort key that puts workers with failures first, followed by workers with restarts."""
    failed = sum(a.outcome is not None and a.outcome.is_failure for a in attempts)
    return -failed, -attempts[-1].attempt


def _of_attempt(attempt: AttemptRecord, end: float) -> list[Bar]:
    outcome = attempt.outcome
    attempt_end = end if attempt.ended is None else attempt.ended
    look = "running" if outcome is None else outcome.kind
    title = f"attempt {attempt.attempt}: {look}, {seconds(attempt_end - attempt.began)}"
    if outcome is not None and outcome.cause:
        title += f"\n{outcome.cause}"
    ready = attempt_end if attempt.ready is None else min(attempt.ready, attempt_end)
    bars = [Bar(attempt.began, ready, "starting", f"attempt {attempt.attempt}: starting")]
    if attempt.ready is not None or outcome is not None:
        text = f"{attempt.attempt}" if look == "running" else f"{attempt.attempt} {look}"
        # If an attempt never was ready, its whole bar has the colour of its end.
        bars = bars if attempt.ready is not None else []
        began = attempt.began if attempt.ready is None else ready
        bars.append(Bar(began, attempt_end, look, title, text))
    return bars


def of_calls(trace: Trace) -> TimeLine:
    """Return a time line of the calls that workers made and answered, in microseconds."""
    names: dict[int, str] = {}
    lanes: dict[int, list[list[Bar]]] = {}
    beside: dict[tuple[int, str], dict[str, Any]] = {}
    for event in trace.events():
        process = event["pid"]
        if event["name"] == "process_name":
            names[process] = event["args"]["name"]
        if event.get("cat") not in _LANES:
            continue
        if event["ph"] == "b":
            beside[process, event["id"]] = event
        elif event["ph"] == "e":
            begin = beside.pop((process, event["id"]), None)
            if begin is not None:
                _add(lanes, begin, begin["ts"], event["ts"])
        elif event["ph"] == "X":
            _add(lanes, event, event["ts"], event["ts"] + event["dur"])
    length = (trace.ended_ns - trace.began_ns) / 1e3
    busiest = sorted(lanes, key=lambda process: -sum(map(len, lanes[process])))[:MOST_ROWS]
    rows = [
        Row(names[process], [_joined(lane, length / _PIXELS) for lane in lanes[process]])
        for process in sorted(busiest)
    ]
    n_more = len(lanes) - len(rows)
    note = ""
    if n_more:
        note = f"the {MOST_ROWS} workers with the most calls; the file has {n_more} more"
    n_bars = sum(len(lane) for row in rows for lane in row.lanes)
    if n_bars > _MOST_BARS:
        most = _MOST_BARS // (2 * len(rows))
        rows = [Row(row.worker, [_longest(lane, most) for lane in row.lanes]) for row in rows]
        note = "; ".join(filter(None, (note, "of the calls, the longest are drawn")))
    looks = {
        "call": "calls that it makes, until the answer is there",
        "answer": "calls that it answers",
        "wait": "waits for others: a barrier, the stop",
    }
    return TimeLine(
        rows, 0.0, max(length, 1.0), lambda us: seconds(us / 1e6) if us else "0", looks, note
    )


def _add(
    lanes: dict[int, list[list[Bar]]], event: Mapping[str, Any], begin: float, end: float
) -> None:
    number, look = _LANES[event["cat"]]
    error = event["args"].get("error", "")
    if error and error != "(not finished)":
        look += " error"
    title = f"{event['name']}  {seconds((end - begin) / 1e6)}"
    if error:
        title += f"\n{error}"
    lanes.setdefault(event["pid"], [[], []])[number].append(Bar(begin, end, look, title))


def _joined(bars: Sequence[Bar], pixel: float) -> list[Bar]:
    """Join short bars of the same look that are too close together to be distinguished."""
    groups: list[list[Bar]] = []
    ends: dict[str, tuple[float, list[Bar]]] = {}
    for bar in sorted(bars, key=attrgetter("began")):
        last_end, last_group = ends.get(bar.look, (0.0, []))
        is_short = bar.ended - bar.began < 3 * pixel
        if last_group and is_short and bar.began - last_end < pixel:
            last_group.append(bar)
            ends[bar.look] = max(last_end, bar.ended), last_group
        else:
            groups.append([bar])
            if is_short:
                ends[bar.look] = bar.ended, groups[-1]
    return [_as_one(group) for group in groups]


def _as_one(bars: Sequence[Bar]) -> Bar:
    """Return one bar for the time of all these bars. They have the same look, and the earliest is first."""
    first = bars[0]
    if len(bars) == 1:
        return first
    title = f"{len(bars)} short ones, such as\n{first.title}"
    return Bar(first.began, max(bar.ended for bar in bars), first.look, title)


def _longest(bars: Sequence[Bar], count: int) -> list[Bar]:
    longest = sorted(bars, key=lambda bar: bar.began - bar.ended)[:count]
    return sorted(longest, key=attrgetter("began"))
