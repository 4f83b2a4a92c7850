"""The numbers of a program's edges and workers at one moment, made from its workers' reports."""

from __future__ import annotations

import time
from collections.abc import Collection

from launchpad.launch.supervision.worker_state import WorkerState
from launchpad.telemetry.edge_stats import Edges, Row, gathered
from launchpad.telemetry.program_metrics import WorkerMetrics


def edges(workers: Collection[WorkerState], silent: Collection[str], uptime_s: float) -> Edges:
    """Return the counts of all attempts of all workers.

    Args:
        silent: The workers that have not answered.
        uptime_s: How long ago the program began.
    """
    rows_made: list[Row] = []
    rows_served: list[Row] = []
    lacking = {*silent}
    for worker in workers:
        # Read the counts once, since another attempt may report in the meantime.
        counts = worker.counts
        total = counts.total
        rows_made += total.made.items()
        rows_served += total.served.items()
        has_ended = worker.attempt > 0 and not worker.is_alive
        if counts.is_lacking or (has_ended and not counts.has_end):
            lacking.add(worker.name)
    return gathered(rows_made, rows_served, {worker.name for worker in workers}, lacking, uptime_s)


def of_worker(worker: WorkerState, *, is_silent: bool) -> WorkerMetrics:
    """Return what a worker's last attempt uses, as far as it has answered."""
    now = time.monotonic()
    counts = worker.counts.last
    return WorkerMetrics(
        worker=worker.name,
        label=worker.plan.group,
        state=worker.shown_state,
        attempt=worker.attempt,
        uptime_s=now - (worker.current.started_at or now) if worker.is_alive else 0.0,
        is_silent=is_silent,
        process=counts.usage if counts is not None and worker.is_alive else None,
    )
