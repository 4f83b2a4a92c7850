"""Barriers, at which the workers of a group wait for each other. Pure: reports in, commands out.

reached   the worker waits; when all workers of its group wait there, all pass
left      the worker waits no longer, and learns which workers are absent
ended     the worker waits no longer; if it has ended for good, the others of its group can never pass
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from launchpad.launch.supervision.worker_state import WorkerState
from launchpad.runtime.commands import AnnounceWatermarks
from launchpad.runtime.watermarks import ABSENT, BARRIER, BROKEN, LEFT


class Barriers:
    """The barriers of one program.

    Args:
        groups: Group → its workers, including those that are added later.
    """

    def __init__(self, groups: Mapping[str, Collection[WorkerState]]) -> None:
        self._groups = groups
        # (group, name) → worker that waits → the number of its wait
        self._waiting: dict[tuple[str, str], dict[str, int]] = {}
        self._ended: dict[str, set[str]] = {}  # group → those that have ended for good

    def reached(self, worker: WorkerState, name: str, number: int) -> list[AnnounceWatermarks]:
        group = worker.plan.group
        waiting = self._waiting.setdefault((group, name), {})
        waiting[worker.name] = number
        names = self._ended.get(group)
        if names:
            return self._break(group, name, names)
        if len(waiting) == len(self._groups[group]):
            del self._waiting[group, name]
            return [AnnounceWatermarks(w, {f"{BARRIER}{name}": n}) for w, n in waiting.items()]
        return []

    def left(self, worker: WorkerState, name: str, number: int) -> list[AnnounceWatermarks]:
        key = worker.plan.group, name
        waiting = self._waiting.get(key, {})
        if waiting.get(worker.name) != number:  # the worker has passed in the meantime
            return []
        absent = self._absent(worker.plan.group, waiting)
        del waiting[worker.name]
        if not waiting:
            del self._waiting[key]
        values = {f"{ABSENT}{name}/{absentee}": number for absentee in absent}
        return [AnnounceWatermarks(worker.name, {**values, f"{LEFT}{name}": number})]

    def ended(self, worker: WorkerState, *, for_good: bool) -> list[AnnounceWatermarks]:
        group = worker.plan.group
        names = [name for g, name in self._waiting if g == group]
        for name in names:
            self._waiting[group, name].pop(worker.name, None)
        if not for_good:
            return []
        self._ended.setdefault(group, set()).add(worker.name)
        return [c for name in names for c in self._break(group, name, {worker.name})]

    def restarted(self, worker: WorkerState) -> None:
        """Forget that a worker has ended for good, because it is started again with its group."""
        self._ended.get(worker.plan.group, set()).discard(worker.name)

    def _break(self, group: str, name: str, workers: Collection[str]) -> list[AnnounceWatermarks]:
        waiting = self._waiting.pop((group, name), {})
        marks = [f"{BROKEN}{name}/{worker}" for worker in sorted(workers)]
        return [AnnounceWatermarks(w, dict.fromkeys(marks, n)) for w, n in waiting.items()]

    def _absent(self, group: str, waiting: Collection[str]) -> list[str]:
        return [worker.name for worker in self._groups[group] if worker.name not in waiting]
