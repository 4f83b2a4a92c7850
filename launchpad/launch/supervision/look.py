"""What one look at a program shows, made of what its workers have reported: numbers of edges and workers."""

from __future__ import annotations

import time
from collections.abc import Collection

from launchpad.edges.stats import Edges, gathered
from launchpad.launch.supervision.worker_state import WorkerState
from launchpad.metrics.program_metrics import WorkerMetrics


def edges(workers: Collection[WorkerState], silent: Collection[str], uptime_s: float) -> Edges:
    """What all attempts of all workers have counted.

    Args:
        silent: The workers that have not answered.
        uptime_s: How long ago the program began.
    """
    # A copy of each: another attempt may report meanwhile.
    reports = [report for worker in workers for report in list(worker.counted.values())]
    made = [row for report in reports for row in report.counted.made.items()]
    served = [row for report in reports for row in report.counted.served.items()]
    lacking = {*silent} | {
        worker.name
        for worker in workers
        for attempt in range(1, worker.ended_attempt + 1)
        if attempt not in worker.counted or not worker.counted[attempt].is_last
    }
    return gathered(made, served, {worker.name for worker in workers}, lacking, uptime_s)


def of_worker(worker: WorkerState, *, is_silent: bool) -> WorkerMetrics:
    """What its last attempt uses, as far as it has answered."""
    now, known = time.monotonic(), worker.counted.get(worker.attempt)
    return WorkerMetrics(
        worker=worker.name,
        label=worker.plan.group,
        state=worker.shown_state,
        attempt=worker.attempt,
        uptime_s=now - (worker.started_at or now) if worker.is_alive else 0.0,
        is_silent=is_silent,
        process=known.usage if known is not None and worker.is_alive else None,
    )
