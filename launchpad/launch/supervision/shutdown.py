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
from collections.abc import Collection, Mapping
from typing import NamedTuple

from launchpad.launch.supervision.due_times import DueTimes
from launchpad.launch.supervision.worker_state import Decided, KillReason, WorkerState
from launchpad.runtime.commands import KillWorker, StopWorker

_ORDERLY_S = 0.2
"""Seconds to wait for a group until the next one, which was started earlier, is asked too."""


class _Step(NamedTuple):
    """A group to stop: those of its workers that stop last, or the others."""

    group: str
    is_last: bool


class Shutdown:
    """The stop of some workers. Pure: `tick` returns what is due.

    Args:
        members: The workers to stop.
        ranks: The ranks of their groups. The group that was started last has the lowest one, and is asked
            first.
        now: The time at which the stop begins, in monotonic seconds.
        grace_s: How long a worker may take if its policy has no stop_grace_s; see `Supervisor`.
        restart_at: When the workers are started again, if all have ended by then; None if they are not
            started again.
    """

    def __init__(
        self,
        members: Collection[WorkerState],
        ranks: Mapping[str, int],
        now: float,
        grace_s: float,
        restart_at: float | None = None,
    ) -> None:
        self.members = members
        self.restart_at = restart_at
        self._of_step: dict[_Step, list[WorkerState]] = {}
        for worker in members:
            step = _Step(worker.plan.group, worker.plan.policy.stops_last)
            self._of_step.setdefault(step, []).append(worker)
        # The next step is the last one of the list.
        self._steps = sorted(self._of_step, key=lambda s: (s.is_last, ranks[s.group]), reverse=True)
        self._began = now
        self._grace_s = grace_s
        # The workers that have not ended; of these, those that were asked; and how many don't stop last.
        self._running = {worker for worker in members if worker.is_alive}
        self._asked = {worker for worker in self._running if worker.current.asked}
        self._n_ordinary = sum(not w.plan.policy.stops_last for w in self._running)
        graces = [w.plan.grace_s(grace_s) for w in self._running if not w.plan.policy.stops_last]
        half_s = math.inf if min(graces, default=0) < 0 else max(graces, default=0) / 2
        self._last_at = now + half_s
        self._last_asked_at = self._last_at
        has_grace = any(worker.plan.policy.restart.stop_grace_s for worker in members)
        self._kills_at_once = grace_s == 0 and not has_grace and restart_at is None
        self._is_at_once = False
        self._next_at = now
        self._kills = DueTimes(self._kill_at)
        self._update_kills()

    @property
    def is_running(self) -> bool:
        """True if a worker has not ended."""
        return bool(self._running)

    def kill_at_once(self) -> None:
        """Have the next tick kill all workers that still run."""
        self._is_at_once = True
        self._update_kills()

    def asked(self, worker: WorkerState) -> None:
        """Take note that a worker was asked to stop for another reason."""
        if worker in self._running:
            self._asked.add(worker)

    def ended(self, worker: WorkerState) -> None:
        """Take note that a worker has ended."""
        if worker in self._running:
            self._running.remove(worker)
            self._asked.discard(worker)
            self._n_ordinary -= not worker.plan.policy.stops_last

    def tick(self, now: float) -> list[Decided]:
        commands: list[Decided] = []
        while self._steps:
            is_last = self._steps[-1].is_last
            waits = self._n_ordinary > 0 if is_last else bool(self._asked)
            if waits and now < self._ask_at():
                break
            for worker in self._of_step[self._steps.pop()]:
                if worker in self._running:
                    worker.move("ask")
                    worker.current.asked = True
                    self._asked.add(worker)
                    commands.append(StopWorker(worker.name, self.restart_at is not None))
            self._next_at = now + _ORDERLY_S
            if is_last:
                self._last_asked_at = min(now, self._last_asked_at)
                self._update_kills()
        for worker in self._kills.take(now):
            worker.current.killed_for = KillReason.NOT_STOPPED
            commands.append(KillWorker(worker.name, at_once=self._kills_at_once))
        return commands

    def wake_at(self) -> float | None:
        """Return when `tick` has something to do, if no worker ends before that; None if never."""
        kill_at = self._kills.next_at()
        times = [math.inf if kill_at is None else kill_at]
        if self._steps:
            times.append(self._ask_at())
        wake_at = min(times)
        return wake_at if wake_at < math.inf else None

    def _update_kills(self) -> None:
        for worker in self.members:
            if worker in self._running:
                self._kills.update(worker)

    def _ask_at(self) -> float:
        """Return when to ask the next group even if others still run."""
        return self._last_at if self._steps[-1].is_last else self._next_at

    def _kill_at(self, worker: WorkerState) -> float | None:
        """Return when to kill a worker, in monotonic seconds; None if it never is, or has ended."""
        if worker not in self._running or worker.current.killed_for:
            return None
        if self._is_at_once:
            return self._began
        grace_s = worker.plan.grace_s(self._grace_s)
        begins_at = self._last_asked_at if worker.plan.policy.stops_last else self._began
        return begins_at + grace_s if grace_s >= 0 else None
