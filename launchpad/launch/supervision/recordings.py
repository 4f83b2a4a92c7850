"""A recording of all workers, as the launcher sees it: which were asked, what they reported, how they fared.

    Running.trace ── Recording ──▶ Runner's inbox
                     observe(workers, now) after each decision ──▶ AnnounceWatermarks to each that has come up
                     add(SpansRecorded)                  ◀── each of them, when the time is up, or at its end

A worker that is started meanwhile records what is left of the time. One that is killed reports nothing.
"""

from __future__ import annotations

import time
from collections.abc import Collection

from launchpad.launch.supervision.worker_state import Decided, State, WorkerState
from launchpad.runtime.commands import AnnounceWatermarks
from launchpad.runtime.events import SpansRecorded
from launchpad.runtime.watermarks import RECORDING, pack_recording
from launchpad.telemetry.trace import StateChange

_RATE, _LEAST_RATE = 2000, 20
"""Calls a second that are recorded at most: of all workers together, and of one at least."""


def rate_of(n_workers: int) -> int:
    """How many calls a second each of so many records, and the script."""
    return max(_RATE // (n_workers + 1), _LEAST_RATE)


class Recording:
    """One recording of a program. The runner's thread changes it, with its lock held.

    Attributes:
        reports: By worker and attempt.
        changes: What has become of workers, in order; the first one of each is its state when it began.
    """

    def __init__(self, number: int, seconds: float) -> None:
        self.until_s = time.monotonic() + seconds
        self.reports: dict[tuple[str, int], SpansRecorded] = {}
        self.changes: list[StateChange] = []
        self._number = number
        self._asked: set[tuple[str, int]] = set()
        self._last: dict[str, tuple[int, State]] = {}

    def add(self, report: SpansRecorded) -> None:
        """Takes what a worker has recorded, if it was recorded for this."""
        if report.number == self._number:
            self.reports[report.worker, report.attempt] = report

    def observe(self, workers: Collection[WorkerState], now: float) -> list[Decided]:
        """Notes what has changed, and asks those that have come up."""
        up = []
        for worker in workers:
            present = worker.attempt, worker.state
            if self._last.get(worker.name) == present:
                continue
            before = self._last.get(worker.name, present)
            self._last[worker.name] = present
            if before[0] < worker.attempt and before[1] is not State.RESTARTING:  # at once
                self._add_change(worker, before[0], State.RESTARTING)
            self._add_change(worker, *present)
            if worker.state is State.RUNNING and now < self.until_s:
                up.append(worker)
        self._asked |= {(worker.name, worker.attempt) for worker in up}
        rate = rate_of(sum(worker.is_alive for worker in workers))
        value = pack_recording(self._number, self.until_s - now, rate)
        return [AnnounceWatermarks(worker.name, {RECORDING: value}) for worker in up]

    def _add_change(self, worker: WorkerState, attempt: int, state: State) -> None:
        has_ended = state in (State.ENDED, State.RESTARTING)
        outcome = worker.outcome if has_ended else None
        why = outcome.headline() if outcome is not None and outcome.attempt == attempt else ""
        self.changes.append(StateChange(worker.name, attempt, state, time.monotonic_ns(), why))

    def missing(self) -> dict[tuple[str, int], str]:
        """Worker and attempt of those that were asked and have not reported → how they have ended, if so."""
        return {
            asked: next((c.why for c in self.changes if c[:2] == asked and c.why), "")
            for asked in self._asked - self.reports.keys()
        }

    def is_complete(self) -> bool:
        """Whether nothing is to come: the time is up, and those that have not reported have ended."""
        return time.monotonic() >= self.until_s and all(self.missing().values())
