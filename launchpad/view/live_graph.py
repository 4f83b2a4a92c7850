"""The graph of a running program: its boxes and arrows, and their current styles.

    picture of the program ─┐
    Look, flows            ─┼─▶ live_graph ──▶ Picture, Styles ──▶ svg.svg
    groups that are unfolded┘

A group is one box until the user unfolds it. Then it is a frame with a box for each worker. The width of an
arrow shows the number of calls. Its colour is red if calls failed. Otherwise the colour shows the median time
of a call.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from launchpad.courier.formatting import seconds
from launchpad.graph.picture import Arrow, Box, Picture
from launchpad.graph.svg import ArrowStyle, BoxStyle, Styles
from launchpad.telemetry.edge_stats import EdgeStats
from launchpad.view.looks import Look, WorkerRow, counted, joined, titled

MOST_ARROWS = 600
_MOST_LABELS = 60
_FILLS = {
    "failed": "#f5b7b1",
    "lost": "#f5b7b1",
    "restarting": "#fdebd0",
    "starting": "#fcf3cf",
    "stopping": "#fcf3cf",
    "pending": "#f2f3f4",
    "running": "white",
    "stopped": "#e5e8e8",
    "succeeded": "#d5f5e3",
}
"""Maps each state to the colour of a box. The worst state is first: a group has its worst worker's colour."""

_FAILED = "#c0392b"
_IDLE = "#bbb"
_SLOW = ((0.001, "#1e8449"), (0.01, "#2471a3"), (0.1, "#b9770e"), (math.inf, "#a04000"))
"""Upper limits of the median time of a call, in seconds, with the colours of arrows below each limit."""


def live_graph(
    picture: Picture | None,
    look: Look,
    flows: Sequence[EdgeStats],
    total_flows: Sequence[EdgeStats] = (),
    unfolded: Collection[str] = (),
) -> tuple[Picture, Styles]:
    """Return the picture of a program as it was last seen, and the styles of its parts.

    Args:
        picture: The picture of the program, for edges without any calls yet. None if the run has no picture.
        flows: The calls between groups since the previous look.
        total_flows: The calls between groups since the program began.
        unfolded: The groups whose workers are shown.
    """
    kinds: dict[str, list[str]] = {}
    for box in picture.boxes if picture is not None else ():
        kinds.setdefault(box.group, []).append(box.kind)
    boxes: list[Box] = []
    box_styles: dict[str, BoxStyle] = {}
    frames: dict[str, str] = {}
    unit_of: dict[str, str] = {}
    for label, workers in look.groups.items():
        kind = ", ".join(kinds.get(label, []))
        title = titled(label, workers)
        if label in unfolded and len(workers) > 1:
            frames[label] = f"group:{label}"
            for worker in workers:
                unit_of[worker.name] = worker.name
                boxes.append(Box(worker.name, label, worker.name, "", f"▾ {title} {kind}"))
                box_styles[worker.name] = _of_worker(worker)
        else:
            unit_of |= {worker.name: label for worker in workers}
            boxes.append(Box(label, label, title, kind))
            box_styles[label] = _of_group(label, workers)
    edges = flows if look.metrics is None or not frames else look.metrics.edges
    period_s = look.metrics.period_s if look.metrics is not None else 0.0
    by_ends: dict[tuple[str, str], list[EdgeStats]] = {}
    for edge in edges:
        ends = unit_of.get(edge.caller, edge.caller), unit_of.get(edge.server, edge.server)
        by_ends.setdefault(ends, []).append(edge)
    box_ids = {box.id for box in boxes}
    outside_names = dict.fromkeys(end for ends in by_ends for end in ends if end not in box_ids)
    boxes += (Box(name, name, name, "not a worker") for name in outside_names)
    busiest = sorted(by_ends, key=lambda ends: -sum(edge.calls for edge in by_ends[ends]))
    arrow_styles = {
        ends: _of_edges(by_ends[ends], ends, period_s, has_label=n < _MOST_LABELS)
        for n, ends in enumerate(busiest[:MOST_ARROWS])
    }
    if not frames:
        _add_totals(arrow_styles, total_flows)
    planned_labels = _planned(picture, box_ids) if picture is not None else {}
    for ends, label in planned_labels.items():
        arrow_styles.setdefault(ends, ArrowStyle(_IDLE, 1.0, label, "no calls yet"))
    arrows = tuple(Arrow(*ends) for ends in arrow_styles)
    name = picture.name if picture is not None else ""
    return Picture(name, tuple(boxes), arrows), Styles(box_styles, arrow_styles, frames)


def _planned(picture: Picture, box_ids: Collection[str]) -> dict[tuple[str, str], str]:
    """Return the labels of the program's arrows between folded groups, by their ends."""
    group_of = {box.id: box.group for box in picture.boxes}
    ends = {(group_of[a.source], group_of[a.target]): a.label for a in picture.arrows}
    return {
        pair: label for pair, label in ends.items() if pair[0] in box_ids and pair[1] in box_ids
    }


def _of_worker(worker: WorkerRow) -> BoxStyle:
    state = "" if worker.first_state == "running" else worker.first_state
    attempt = "" if worker.attempt <= 1 else f"attempt {worker.attempt}"
    note = ", ".join(filter(None, (state, attempt)))
    title = "\n".join(filter(None, (f"{worker.name}: {worker.state}", worker.cause)))
    return BoxStyle(_fill([worker]), note, title, f"worker:{worker.name}")


def _of_group(label: str, workers: Sequence[WorkerRow]) -> BoxStyle:
    if len(workers) == 1:
        return _of_worker(workers[0])
    n_restarts = sum(worker.n_restarts for worker in workers)
    note = counted(workers) + (f", {n_restarts} restarts" if n_restarts else "")
    causes = [f"{worker.name}: {worker.cause}" for worker in workers if worker.cause]
    return BoxStyle(_fill(workers), note, "\n".join(causes[:10]), f"group:{label}")


def _add_totals(styles: dict[tuple[str, str], ArrowStyle], total: Sequence[EdgeStats]) -> None:
    """Add the number of calls since the program began to the labels of arrows between groups."""
    calls: dict[tuple[str, str], int] = {}
    for flow in total:
        calls[flow.caller, flow.server] = calls.get((flow.caller, flow.server), 0) + flow.calls
    for ends, style in styles.items():
        if ends in calls and style.label:
            label = f"{style.label}\n{calls[ends]:,} calls"
            styles[ends] = replace(style, label=label, key=f"edge:{ends[0]} {ends[1]}")


def _fill(workers: Sequence[WorkerRow]) -> str:
    states = {worker.first_state for worker in workers}
    return next((fill for state, fill in _FILLS.items() if state in states), "white")


def _of_edges(
    edges: Sequence[EdgeStats], ends: tuple[str, str], period_s: float, *, has_label: bool
) -> ArrowStyle:
    total = joined(edges, *ends, "*", period_s)
    methods = sorted({edge.method for edge in edges})
    per_s = total.calls_per_s
    p50_s = total.p50_s
    label = ""
    if has_label and (per_s or not math.isnan(p50_s)):
        label = f"{per_s:,.0f}/s" if per_s >= 10 or not per_s else f"{per_s:.2g}/s"
        if not math.isnan(p50_s):
            label += f" · {seconds(p50_s)}"
        if total.errors:
            label += f" · {total.errors:,} errors"
    color = _IDLE if not per_s else next(c for s, c in _SLOW if not p50_s > s)
    title = (
        f"{ends[0]} → {ends[1]}: {', '.join(methods[:5])}\n{per_s:,.1f} calls/s,"
        f" p50 {seconds(p50_s)}, p99 {seconds(total.p99_s)}, {total.errors:,} errors,"
        f" {total.in_flight:,} in flight"
    )
    width = 1 + min(5.0, math.log10(1 + per_s))
    return ArrowStyle(_FAILED if total.errors else color, round(width, 1), label, title)
