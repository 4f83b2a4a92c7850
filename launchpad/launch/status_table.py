"""The workers of a program as a table in HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from launchpad.launch.rundir.record import WorkerStatus
from launchpad.outcome import FAILED, LOST

_HEADER = ("worker", "state", "attempt", "pid", "why its last attempt ended")
_SHOWN = 50


def html(title: str, workers: Sequence[WorkerStatus]) -> str:
    """A table with a row for each worker, those that have failed first; of many only the first are shown."""
    ordered = sorted(workers, key=lambda row: row.state not in (FAILED, LOST))
    lines = [f"<table><caption>{escape(title)}</caption>", _row("th", _HEADER)]
    for row in ordered[:_SHOWN]:
        lines.append(
            _row("td", (row.worker, row.shown_state, row.attempt, row.pid or "", row.cause))
        )
    if len(workers) > _SHOWN:
        lines.append(_row("td", (f"… and {len(workers) - _SHOWN} more",)))
    return "\n".join([*lines, "</table>"])


def _row(tag: str, cells: Iterable[object]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"
