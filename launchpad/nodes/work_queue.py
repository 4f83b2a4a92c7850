"""WorkQueueNode: serves a work queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launchpad.courier.checks import is_number, is_whole
from launchpad.errors import refuse_unless
from launchpad.nodes.courier import CourierNode, ServiceHandle
from launchpad.work_queues.client import WorkQueue
from launchpad.work_queues.server import WorkQueueServer


class WorkQueueHandle(ServiceHandle[WorkQueue]):
    """Stands for a WorkQueueNode; in a worker it turns into a `WorkQueue`."""

    made_into = WorkQueue


class WorkQueueNode(CourierNode[WorkQueueServer]):
    """A set of jobs, each of which is done once: a worker that dies gives its job back at once.

    Example:
        program = lp.Program("render")
        queue = program.add_node(lp.WorkQueueNode(max_attempts=3), label="jobs")
        with program.group("worker", restart=lp.RestartPolicy()):
          for _ in range(8):
            program.add_node(lp.PyNode(work, queue))       # in work: for lease in queue: …

    Its state survives restarts, and launches with `state=`, as it was saved last: at each orderly end, and
    every `lp.RestartPolicy(save_every_s=…)`. Jobs that were done since then are done once more.

    For items that flow through and are gone, `lp.QueueNode`.

    Args:
        max_attempts: How often a job is tried; then it is `failed`. An attempt is over when its worker ends,
            calls `fail`, or has taken too long.
        lease_s: How long a worker may take for a job, since it took it or called `extend`. No limit if None.
            The launching script's jobs come back only by this.
        courier_kwargs: As for `CourierNode`.

    Raises:
        DefinitionError: a number is not more than 0.
    """

    def __init__(
        self,
        max_attempts: int = 3,
        lease_s: float | None = None,
        *,
        courier_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.max_attempts = max_attempts
        self.lease_s = lease_s
        is_time = lease_s is None or (is_number(lease_s) and lease_s > 0)
        rules = (
            ("max_attempts", is_whole(max_attempts, at_least=1), "an int, 1 or more"),
            ("lease_s", is_time, "seconds, more than 0, or None"),
        )
        refuse_unless(self, rules)
        super().__init__(WorkQueueServer, max_attempts, lease_s, courier_kwargs=courier_kwargs)

    def create_handle(self) -> WorkQueueHandle:
        return WorkQueueHandle(self, self._address, self._client_kwargs)

    def __repr__(self) -> str:
        return "WorkQueueNode()"
