"""The workers by group, and counts by what is true of them: no decision has to look at all workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from launchpad.launch.supervision.worker_state import State, WorkerState

ALIVE_OR_BACK = "alive or back"
"""The worker has not ended, or will be started again."""

HAS_WORK = "has work"
"""The worker runs something, or may do so when it is ready."""

HAS_RUN = "has run"
"""The worker has, or had, something to run. One that ended before it was ready counts."""

KEEPS_MAIN = "keeps main"
"""The worker is in a main group, and its own work has not ended."""

MAY_END_MAIN = "may end main"
"""The worker runs something in a main group, or isn't ready for the first time."""

HAS_FAILED = "has failed"
"""The worker has failed, and is not started again."""


def _is_busy(worker: WorkerState) -> bool:
    return worker.state is not State.ENDED and not worker.current.is_done


_FACTS: dict[str, Callable[[WorkerState], bool]] = {
    ALIVE_OR_BACK: lambda w: w.state is not State.ENDED,
    HAS_WORK: lambda w: _is_busy(w) and w.runs is not False,
    HAS_RUN: lambda w: bool(w.runs) or (w.state is State.ENDED and w.runs is None),
    KEEPS_MAIN: lambda w: w.plan.policy.main and _is_busy(w),
    MAY_END_MAIN: lambda w: _is_busy(w) and (w.runs is None or (w.runs and w.plan.policy.main)),
    HAS_FAILED: lambda w: w.has_failed,
}


class Roster:
    """The workers of a program by group, and for how many of them each fact holds.

    `update` must be called after each change of a worker that a fact depends on: its state, `runs`, `outcome`
    and `is_done`.

    Attributes:
        groups: Group → its workers, in the order of their starts.
        ranks: Group → its rank. The group that was started last has the lowest one, and is stopped first.
        have_ended: The workers of which an attempt has ended, by name.
        has_main: True if there is a main group.
        longest_window_s: The longest `within_s` of all policies.
    """

    def __init__(self) -> None:
        self.groups: dict[str, list[WorkerState]] = {}
        self.ranks: dict[str, int] = {}
        self.have_ended: dict[str, WorkerState] = {}
        self.has_main = False
        self.longest_window_s = 0.0
        self._counts: Counter[tuple[str, str]] = Counter()
        self._facts: dict[WorkerState, tuple[str, ...]] = {}
        # Facts → the same tuple, so that thousands of workers share a few tuples.
        self._shared: dict[tuple[str, ...], tuple[str, ...]] = {}

    def add(self, worker: WorkerState, *, stops_first: bool = False) -> None:
        """Add a worker. `stops_first` is True if its group is stopped before all groups that are there."""
        plan = worker.plan
        self.groups.setdefault(plan.group, []).append(worker)
        if stops_first or plan.group not in self.ranks:
            self.ranks[plan.group] = -len(self._facts)
        self.has_main |= plan.policy.main
        self.longest_window_s = max(self.longest_window_s, plan.policy.restart.within_s)
        self.update(worker)

    def update(self, worker: WorkerState) -> None:
        """Count a worker as what it is now."""
        facts = tuple([fact for fact, holds in _FACTS.items() if holds(worker)])
        before = self._facts.get(worker, ())
        if facts == before:
            return
        self._facts[worker] = self._shared.setdefault(facts, facts)
        for step, changed in ((-1, before), (1, facts)):
            for fact in changed:
                self._counts[fact, ""] += step
                self._counts[fact, worker.plan.group] += step

    def count(self, fact: str, group: str = "") -> int:
        """Return for how many workers this holds, in all or in a group."""
        return self._counts[fact, group]
