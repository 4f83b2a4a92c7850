"""The way to stop workers, at the end of the program or to restart them: request → wait → kill.

Groups are asked to stop one after another, in reverse order of start. The next group is asked when the group
before it has ended. If that takes more than a moment, the next group is asked anyway, since the group before
may be waiting for a server of the next one. Some workers stop last, because their callers never learn that
they have gone. They are asked when all other workers have ended, or when half of the others' longest grace
period is over. A worker that has not ended at the end of its grace period is killed. For workers that stop
last, this period begins when they are asked.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from launchpad.launch.supervision.worker_state import Decided, KillReason, WorkerState
from launchpad.runtime.commands import KillWorker, StopWorker

_ORDERLY_S = 0.2
"""Seconds to wait for a group until the next one, which was started earlier, is asked too."""


class Shutdown:
    """The stop of some workers. Pure: `tick` returns what is due.

    Args:
        members: The workers to stop.
        groups: The groups of these workers. The group that was started last comes first.
        now: The time at which the stop begins, in monotonic seconds.
        grace_s: How long a worker may take if its policy has no stop_grace_s; see `Supervisor`.
        restart_at: When the workers are started again, if all have ended by then; None if they are not
            started again.

    Attributes:
        at_once: True if workers that still run are killed at the next tick.
    """

    def __init__(
        self,
        members: Collection[WorkerState],
        groups: Sequence[str],
        now: float,
        grace_s: float,
        restart_at: float | None = None,
    ) -> None:
        self.members = members
        self.restart_at = restart_at
        kinds = {(worker.plan.group, worker.plan.policy.stops_last) for worker in members}
        self._steps = [(g, last) for last in (False, True) for g in groups if (g, last) in kinds]
        self._began = now
        self._grace_s = grace_s
        graces = [w.plan.grace_s(grace_s) for w in self.running if not w.plan.policy.stops_last]
        half_s = math.inf if min(graces, default=0) < 0 else max(graces, default=0) / 2
        self._last_at = now + half_s
        self._last_asked_at = self._last_at
        has_grace = any(worker.plan.policy.restart.stop_grace_s for worker in members)
        self._kills_at_once = grace_s == 0 and not has_grace and restart_at is None
        self.at_once = False
        self._next_at = now

    @property
    def running(self) -> list[WorkerState]:
        """The workers that have not ended."""
        return [worker for worker in self.members if worker.is_alive]

    def tick(self, now: float) -> list[Decided]:
        commands: list[Decided] = []
        running = self.running
        while self._steps:
            group, is_last = self._steps[0]
            waits = any(
                not w.plan.policy.stops_last if is_last else w.current.asked for w in running
            )
            if waits and now < self._ask_at():
                break
            self._steps.pop(0)
            for worker in running:
                if worker.plan.group == group and worker.plan.policy.stops_last == is_last:
                    worker.move("ask")
                    worker.current.asked = True
                    commands.append(StopWorker(worker.name, self.restart_at is not None))
            self._next_at = now + _ORDERLY_S
            if is_last:
                self._last_asked_at = min(now, self._last_asked_at)
        for worker in running:
            kill_at = self._kill_at(worker)
            if not worker.current.killed_for and kill_at is not None and now >= kill_at:
                worker.current.killed_for = KillReason.NOT_STOPPED
                commands.append(KillWorker(worker.name, at_once=self._kills_at_once))
        return commands

    def wake_at(self) -> float | None:
        """Return when `tick` has something to do, if no worker ends before that; None if never."""
        times: list[float] = []
        for worker in self.running:
            kill_at = self._kill_at(worker)
            if kill_at is not None and not worker.current.killed_for:
                times.append(kill_at)
        if self._steps:
            times.append(self._ask_at())
        return min((t for t in times if t < math.inf), default=None)

    def _ask_at(self) -> float:
        """Return when to ask the next group even if others still run."""
        return self._last_at if self._steps[0][1] else self._next_at

    def _kill_at(self, worker: WorkerState) -> float | None:
        """Return when a worker's grace period is over, in monotonic seconds; None if it never is."""
        if self.at_once:
            return self._began
        grace_s = worker.plan.grace_s(self._grace_s)
        begins_at = self._last_asked_at if worker.plan.policy.stops_last else self._began
        return begins_at + grace_s if grace_s >= 0 else None
