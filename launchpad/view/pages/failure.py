"""The page about a failure: its first cause with traceback and last lines, and the failures that followed."""

from __future__ import annotations

from nicegui import run as threads
from nicegui import ui

from launchpad.launch.rundir.history import RunHistory
from launchpad.outcome import Outcome
from launchpad.view.pages import frame
from launchpad.view.pages.frame import Cell
from launchpad.view.watched_run import WatchedRun


def show(run: WatchedRun) -> None:
    """Build the page."""
    frame.head(run, f"{run.record.program}: failure")
    title = ui.label("looking …").props("id=cause").classes("program")
    hint = ui.label()
    where = frame.markup()
    traceback_title = frame.section("traceback")
    traceback = frame.shown_text().props("id=traceback")
    lines_title = frame.section("last lines of its output")
    lines = frame.shown_text().props("id=lines")
    other_failures = frame.markup()

    async def draw() -> None:
        history = await threads.io_bound(run.history) or RunHistory(run.record.program)
        first = history.first_cause
        for element in (hint, where, traceback_title, traceback, lines_title, lines):
            element.set_visibility(first is not None)
        title.text = _title(run, first)
        title.classes(**{"add" if first is not None else "remove": "failed"})
        if first is not None:
            hint.text = f"hint: {first.hint}" if first.hint else ""
            where.content = _where(run, first)
            traceback.text = first.traceback
            lines.text = "\n".join(first.last_lines)
            traceback_title.set_visibility(bool(first.traceback))
            lines_title.set_visibility(bool(first.last_lines))
        other_failures.content = _consequences(run, history) + _restarted(run, history)

    frame.on_change(lambda: run.states_version, draw)


def _title(run: WatchedRun, first: Outcome | None) -> str:
    if first is not None:
        return first.headline()
    if not run.has_ended:
        return "no failure has ended it; it runs"
    return "no failure is on record of it" + (f": {run.why_unseen}" if run.why_unseen else "")


def _where(run: WatchedRun, first: Outcome) -> str:
    rows: list[list[str | Cell]] = [["worker", _worker(run, first)]]
    about = {
        "exception": first.error_type,
        "raised in": first.raised_in,
        "exit code": "" if first.exit_code is None else f"{first.exit_code}",
        "signal": first.signal,
        "host": f"{first.host}, pid {first.pid}" if first.host else "",
        "log": first.log_path,
        "failed before it": "\n".join(first.earlier),
    }
    rows += ([name, text] for name, text in about.items() if text)
    return frame.table(["", ""], rows, "where")


def _consequences(run: WatchedRun, history: RunHistory) -> str:
    """Return a table of the workers that failed because of the first cause, or after it."""
    rows: list[list[str | Cell]] = [
        [_worker(run, outcome), outcome.cause] for outcome in history.consequences
    ]
    return frame.table(["FAILED AFTER IT", "CAUSE"], rows, "consequences") if rows else ""


def _restarted(run: WatchedRun, history: RunHistory) -> str:
    """Return a table of the failures after which a worker was restarted."""
    outcomes = (attempt.outcome for attempt in history.attempts)
    rows: list[list[str | Cell]] = [
        [_worker(run, outcome), f"{outcome.attempt}", outcome.cause]
        for outcome in outcomes
        if outcome is not None and outcome.is_failure and outcome not in history.failures
    ]
    head = ["OTHER FAILURES OF", "#ATTEMPT", "CAUSE"]
    return frame.table(head, rows[-50:], "restarted") if rows else ""


def _worker(run: WatchedRun, outcome: Outcome) -> Cell:
    return Cell(outcome.worker, frame.path_of_worker(run, outcome.worker))
