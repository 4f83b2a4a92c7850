"""Labels: what the objects of a run are known by in the cluster, and what annotations say of them."""

from __future__ import annotations

from launchpad.launch.backends.kubernetes.objects import names
from launchpad.launch.plan import WorkerPlan

RUN, PROGRAM, GROUP, COLOCATION, WORKER, ATTEMPT = (
    f"launchpad/{name}" for name in ("run", "program", "group", "colocation", "worker", "attempt")
)
ROLE = "launchpad/role"
OURS = {"app.kubernetes.io/managed-by": "launchpad"}

RECORD = "launchpad/record"
"""The annotation of the root that says what there is to know of the run from outside."""

ORDERS = "launchpad/orders"
"""The annotation in which the launcher tells a pod something; a file in `layout.GIVEN`."""


def of_worker(worker: WorkerPlan) -> dict[str, str]:
    """Which it is, and what it belongs to."""
    own = {GROUP: names.label(worker.group), WORKER: names.label(worker.name)}
    return own | ({COLOCATION: names.label(worker.colocation)} if worker.colocation else {})
