"""The page of a program: its graph with the current calls, its edges, and its workers."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui
from nicegui.events import GenericEventArguments

from launchpad.courier.formatting import seconds, size
from launchpad.graph.picture import Picture
from launchpad.graph.svg import svg
from launchpad.telemetry.edge_stats import EdgeStats
from launchpad.view.live_graph import MOST_ARROWS, live_graph
from launchpad.view.looks import Look, WorkerRow, counted, summary, titled, usage_cells
from launchpad.view.pages import charts, frame
from launchpad.view.pages.frame import Cell, number
from launchpad.view.watched_run import WatchedRun

_MOST_ROWS = 60
_ON_PRESS = (
    "(e) => { const part = e.target.closest('[data-key]');"
    " if (part && e.button === 0 && !e.ctrlKey && !e.metaKey) emit(part.dataset.key); }"
)
"""The handler for a press of the mouse button. Clicks are not handled, because a click would be lost if the
page redrew its element before the user releases the button."""
EDGES = "FROM TO METHOD #CALLS #CALLS/S #p50 #p99 #BYTES/S #ERRORS #IN-FLIGHT".split()
_WORKERS = ["WORKER", "STATE", "#ATTEMPT", "#CPU", "#MEM", "#THREADS", "LAST END"]


def show(run: WatchedRun) -> None:
    """Build the page."""
    with frame.head(run, run.record.program):
        frame.add_stop(run)
    unfolded: set[str] = set()
    picture = Picture.from_dict(run.record.picture) if run.record.picture else None
    state = ui.label().props("id=state")
    graph = frame.markup().classes("graph").props("id=graph")
    note = ui.label()
    charts.add(run)
    frame.section("calls between groups")
    edges = frame.markup().classes("scrolled")
    frame.section("workers")
    workers = frame.markup().classes("scrolled")

    async def draw() -> None:
        look = run.look
        if look is None:
            state.text = run.why_unseen or "looking …"
            return
        if run.has_ended:
            state.text = f"it has ended: {counted(look.workers)}"
        else:
            state.text = summary(look, run.flows)
        flows = run.total_flows if run.has_ended else run.flows
        drawn, styles = live_graph(picture, look, flows, run.total_flows, unfolded)
        graph.content = svg(drawn, styles)
        n_edges = len(look.metrics.edges) if look.metrics is not None else 0
        note.text = ""
        if unfolded and n_edges > MOST_ARROWS:
            note.text = f"of the edges, the {MOST_ARROWS} with the most calls are drawn"
        edges.content = _edges(run)
        workers.content = _workers(run, look, unfolded)

    async def pressed(event: GenericEventArguments) -> None:
        kind, _, name = str(event.args).partition(":")
        if kind == "group":
            unfolded.symmetric_difference_update({name})
            await draw()
        elif kind == "worker":
            ui.navigate.to(frame.path_of_worker(run, name))

    for element in (graph, workers):
        element.on("mousedown", pressed, js_handler=_ON_PRESS)
    frame.on_change(lambda: run.version, draw)


def _edges(run: WatchedRun) -> str:
    """Return the table of edges between groups."""
    now = {(flow.caller, flow.server, flow.method): flow for flow in run.flows}
    return frame.table(
        EDGES,
        [
            edge_row(total, now.get((total.caller, total.server, total.method), total))
            for total in run.total_flows[:_MOST_ROWS]
        ],
        "edges",
    )


def edge_row(total: EdgeStats, now: EdgeStats) -> list[str | Cell]:
    """Return a row about an edge. `total` counts since the program began, `now` since the previous look."""
    errors = number(f"{total.errors:,}", "failed" if total.errors else "")
    return [
        total.caller,
        total.server,
        total.method,
        number(f"{'' if total.is_exact else '≥ '}{total.calls:,}"),
        number(f"{now.calls_per_s:,.1f}"),
        number(seconds(now.p50_s)),
        number(seconds(now.p99_s)),
        number(size(round(now.bytes_per_s))),
        errors,
        number(f"{now.in_flight:,}"),
    ]


def _workers(run: WatchedRun, look: Look, unfolded: set[str]) -> str:
    """Return the table of workers. It has a row for each group, and for each worker of unfolded groups."""
    rows: list[Sequence[str | Cell]] = []
    for label, workers in look.groups.items():
        if len(workers) > 1:
            rows.append(_group_row(label, workers, is_unfolded=label in unfolded))
        if len(workers) == 1 or label in unfolded:
            rows += (_worker_row(run, worker, indent=len(workers) > 1) for worker in workers)
    return frame.table(_WORKERS, rows, "workers")


def _group_row(label: str, workers: Sequence[WorkerRow], *, is_unfolded: bool) -> list[str | Cell]:
    n_restarts = sum(worker.n_restarts for worker in workers)
    causes = {worker.cause for worker in workers if worker.cause}
    return [
        Cell(f"{'▾' if is_unfolded else '▸'} {titled(label, workers)}", key=f"group:{label}"),
        counted(workers),
        number(f"+{n_restarts}" if n_restarts else ""),
        *map(number, usage_cells(workers)),
        "; ".join(sorted(causes)[:2]),
    ]


def _worker_row(run: WatchedRun, worker: WorkerRow, *, indent: bool) -> list[str | Cell]:
    return [
        Cell(
            f"{'   ' if indent else ''}{worker.name}",
            frame.path_of_worker(run, worker.name),
            key=f"worker:{worker.name}",
        ),
        Cell(worker.state, css="failed" if worker.has_failed else ""),
        number(f"{worker.attempt}"),
        *map(number, usage_cells([worker])),
        worker.cause,
    ]
