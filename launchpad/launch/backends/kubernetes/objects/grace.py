"""Grace: how long a worker may take to stop."""

from __future__ import annotations

from launchpad.launch.plan import WorkerPlan

UNLIMITED_S = 7 * 86400.0
"""What has no limit: a cluster wants a number."""


def grace_s(worker: WorkerPlan, usual_s: float) -> float:
    """Of a worker, by itself or as all; what is negative has no limit."""
    own_s = worker.restart.stop_grace_s
    seconds = usual_s if own_s is None else own_s
    return UNLIMITED_S if seconds < 0 else min(seconds, UNLIMITED_S)
