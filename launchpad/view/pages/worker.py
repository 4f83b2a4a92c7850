"""The page of a worker: its state, attempts, log, stacks and edges."""

from __future__ import annotations

import time

from nicegui import run as threads
from nicegui import ui

from launchpad.courier import CourierError
from launchpad.courier.formatting import seconds, size
from launchpad.errors import LaunchpadError
from launchpad.launch.rundir.history import AttemptRecord
from launchpad.view.looks import Look, without_launchpad_frames
from launchpad.view.pages import charts, frame, program
from launchpad.view.pages.frame import Cell, number
from launchpad.view.watched_run import WatchedRun

_LINES = 300
_LOG_S = 0.5
_EDGES = 100


def show(run: WatchedRun, name: str) -> None:
    """Build the page."""
    frame.head(run, f"{name}: {run.record.program}")
    with ui.element("div").classes("bar"):
        state = ui.label().props("id=state").classes("program")
        frame.add_restart(run, name)
    resources = frame.markup().classes("scrolled")
    charts.add(run, name)
    frame.section("attempts")
    attempts = frame.markup().classes("scrolled")
    frame.section("calls that it makes and answers")
    edges = frame.markup().classes("scrolled")

    async def draw() -> None:
        look = run.look
        if look is None:
            state.text = run.why_unseen or "looking …"
            return
        row = next((row for row in look.workers if row.name == name), None)
        if row is None:
            state.text = f"{run.record.run_id} has no worker {name!r}"
            return
        state.text = f"{name}: {row.state}, attempt {row.attempt}"
        resources.content = _resources(look, name)
        edges.content = _edges(run, name)

    async def draw_attempts() -> None:
        history = await threads.io_bound(run.history)
        if history is not None:
            attempts.content = _attempts(history.of(name))

    frame.on_change(lambda: run.version, draw)
    frame.on_change(lambda: run.states_version, draw_attempts)
    _add_stacks(run, name)
    _add_log(run, name)


def _resources(look: Look, name: str) -> str:
    """Return a table of the resources that the worker's process uses now."""
    row = next(row for row in look.workers if row.name == name)
    all_metrics = () if look.metrics is None else look.metrics.workers
    metrics = next((metrics for metrics in all_metrics if metrics.worker == name), None)
    use = row.usage
    numbers = {}
    if use is not None:
        numbers = {
            "#CPU": f"{use.cpu_percent:.0f} %",
            "#MEM": size(use.memory_bytes),
            "#THREADS": f"{use.threads}",
        }
        if use.gpu_memory_bytes is not None:
            numbers["#GPU"] = f"{use.gpu_percent or 0:.0f} %"
            numbers["#GPU MEM"] = size(use.gpu_memory_bytes)
    if metrics is not None:
        numbers["#UP"] = seconds(metrics.uptime_s)
    cells = [*map(number, numbers.values()), Cell(row.cause), Cell(row.log_path)]
    return frame.table([*numbers, "LAST END", "LOG"], [cells], "resources")


def _attempts(attempts: list[AttemptRecord]) -> str:
    def clock(at: float) -> str:
        return time.strftime("%H:%M:%S", time.localtime(at))

    rows: list[list[str | Cell]] = []
    for attempt in reversed(attempts):
        end = time.time() if attempt.ended is None else attempt.ended
        ready_after = "–" if attempt.ready is None else seconds(attempt.ready - attempt.began)
        outcome = attempt.outcome
        kind = "" if outcome is None else outcome.kind
        has_failed = outcome is not None and outcome.is_failure
        rows.append(
            [
                number(f"{attempt.attempt}"),
                clock(attempt.began),
                number(ready_after),
                number(seconds(end - attempt.began)),
                Cell(kind, css="failed" if has_failed else ""),
                outcome.cause if outcome is not None else "",
                Cell("show", folded=outcome.traceback) if outcome and outcome.traceback else "",
            ]
        )
    head = ["#ATTEMPT", "BEGAN", "#READY AFTER", "#LASTED", "END", "CAUSE", "TRACEBACK"]
    return frame.table(head, rows, "attempts")


def _edges(run: WatchedRun, name: str) -> str:
    """Return a table of the edges over which the worker makes and answers calls."""
    if run.total is None or run.look is None:
        return ""
    current_edges = () if run.look.metrics is None else run.look.metrics.edges
    now = {(edge.caller, edge.server, edge.method): edge for edge in current_edges}
    own = (edge for edge in run.total.edges if name in (edge.caller, edge.server))
    busiest = sorted(own, key=lambda edge: -edge.calls)[:_EDGES]
    rows = [
        program.edge_row(edge, now.get((edge.caller, edge.server, edge.method), edge))
        for edge in busiest
    ]
    return frame.table(program.EDGES, rows, "edges")


def _add_stacks(run: WatchedRun, name: str) -> None:
    async def ask() -> None:
        stacks.text = "…"
        stacks.text = await threads.io_bound(_stacks, run, name) or ""

    with ui.element("div").classes("bar"):
        frame.section("where its threads are")
        frame.button("look", "ask-stacks", ask)
    stacks = frame.shown_text().props("id=stacks")


def _stacks(run: WatchedRun, name: str) -> str:
    try:
        return without_launchpad_frames(run.stacks(name)).replace("; --all shows them", "")
    except (CourierError, LaunchpadError) as error:
        return str(error)


def _add_log(run: WatchedRun, name: str) -> None:
    """Add the end of the log: the last lines, or the last lines with a text. It can follow new lines."""
    with ui.element("div").classes("bar"):
        frame.section("log")
        search = ui.input(placeholder="search").props("dense")
        follow = ui.checkbox("follow", value=True)
    with ui.scroll_area().classes("log") as area:
        log = frame.shown_text().props("id=log")
    # The version of the log that is shown, and the text that the shown lines contain.
    shown_log: tuple[object, str] | None = None

    async def look() -> None:
        nonlocal shown_log
        text = search.value or ""
        version = await threads.io_bound(run.log_version, name)
        if shown_log == (version, text):
            return
        if shown_log is not None and shown_log[1] == text and not follow.value:
            return
        shown_log = (version, text)
        try:
            lines = await threads.io_bound(run.log_lines, name, text, _LINES)
            log.text = "\n".join(lines or ())
            if follow.value:
                area.scroll_to(percent=1.0)
        except (CourierError, LaunchpadError, OSError) as error:
            log.text = str(error)

    ui.timer(_LOG_S, look)
