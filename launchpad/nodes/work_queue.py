"""WorkQueueNode: a node that serves a work queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launchpad.courier.checks import is_number, is_whole
from launchpad.errors import refuse_unless
from launchpad.nodes.courier import CourierNode, ServiceHandle
from launchpad.work_queues.client import WorkQueue
from launchpad.work_queues.server import WorkQueueServer


class WorkQueueHandle(ServiceHandle[WorkQueue]):
    """The handle of a WorkQueueNode; in a worker it turns into a `WorkQueue`."""

    made_into = WorkQueue


class WorkQueueNode(CourierNode[WorkQueueServer]):
    """A node with a set of jobs, each of which is done once. If a worker dies, the queue gets its job back.

    Example:
        program = lp.Program("render")
        queue = program.add_node(lp.WorkQueueNode(max_attempts=3), label="jobs")
        with program.group("worker", restart=lp.RestartPolicy()):
          for _ in range(8):
            program.add_node(lp.PyNode(work, queue))       # in work: for lease in queue: …

    The queue's state is saved at each orderly end, and every `save_every_s` seconds of the group's
    `lp.RestartPolicy`. The state as it was last saved survives restarts, and launches with `state=`. Jobs
    that were done after the last save are done once more.

    For items that are consumed and gone, use `lp.QueueNode`.

    Args:
        max_attempts: The number of attempts at a job. If all of them fail, the job is `failed`. An attempt
            fails when its worker ends, calls `fail`, or takes too long.
        lease_s: Seconds that a worker may take for a job, from when it takes the job or calls `extend`. None
            means no limit. If the launching script takes a job and doesn't finish it, the queue gets it back
            only when this time is over.
        courier_kwargs: As for `CourierNode`.

    Raises:
        DefinitionError: `max_attempts` or `lease_s` is not valid.
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
