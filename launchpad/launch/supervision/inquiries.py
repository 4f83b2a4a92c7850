"""The script's questions to all workers: what they have counted, and what they do for some seconds.

    Running.metrics ── CountsRequest ──▶ Runner's inbox ──▶ AnnounceWatermarks to each that runs
                     is_answered(EdgesCounted)           ◀── each of them
    Running.trace ── Recording ──▶ Runner's inbox
                     observe(workers, now) after each decision ──▶ AnnounceWatermarks to each that has come up
                     add(SpansRecorded)                  ◀── each of them, when the time is up, or at its end

A worker that starts during a recording records for the rest of the time. A worker that is killed reports
nothing.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection

from launchpad.courier.light_dataclass import dataclass
from launchpad.launch.supervision.lifetime import Lifetime
from launchpad.launch.supervision.supervisor import Supervisor
from launchpad.launch.supervision.worker_state import Decided, State, WorkerState
from launchpad.runtime.commands import AnnounceWatermarks
from launchpad.runtime.events import EdgesCounted, SpansRecorded
from launchpad.runtime.watermarks import RECORDING, pack_recording
from launchpad.telemetry.trace import StateChange

_RATE = 2000
"""The highest number of calls per second that all workers together record."""

_LEAST_RATE = 20
"""The number of calls per second that each worker may record in any case."""


def rate_of(n_workers: int) -> int:
    """Return how many calls per second each worker records, and how many the script."""
    return max(_RATE // (n_workers + 1), _LEAST_RATE)


@dataclass(frozen=True)
class CountsRequest:
    """A request of the script for the workers' counts of their calls."""

    number: int


class Recording:
    """One recording of a program. The runner's thread changes it, with the lock held.

    Attributes:
        reports: (Worker, attempt) → its report.
        changes: The changes of workers' states, in order. The first of each worker is its state when the
            recording began.
    """

    def __init__(self, number: int, seconds: float) -> None:
        self.until_s = time.monotonic() + seconds
        self.reports: dict[tuple[str, int], SpansRecorded] = {}
        self.changes: list[StateChange] = []
        self._number = number
        self._asked: set[tuple[str, int]] = set()
        self._last: dict[str, tuple[int, State]] = {}

    def add(self, report: SpansRecorded) -> None:
        """Take a worker's report, if it is one of this recording."""
        if report.number == self._number:
            self.reports[report.worker, report.attempt] = report

    def observe(self, workers: Collection[WorkerState], now: float) -> list[Decided]:
        """Note changed states. Return the commands that tell workers which have come up to record."""
        up = []
        for worker in workers:
            present = worker.attempt, worker.state
            if self._last.get(worker.name) == present:
                continue
            before = self._last.get(worker.name, present)
            self._last[worker.name] = present
            # The worker was restarted at once, between two calls of this function.
            if before[0] < worker.attempt and before[1] is not State.RESTARTING:
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
        """Return (worker, attempt) → how it ended, for attempts that were asked and have not reported.

        The text is empty if the attempt has not ended.
        """
        return {
            attempt: next((c.why for c in self.changes if c[:2] == attempt and c.why), "")
            for attempt in self._asked - self.reports.keys()
        }

    def is_complete(self) -> bool:
        """Return True if no more reports will come: the time is up, and all silent workers have ended."""
        return time.monotonic() >= self.until_s and all(self.missing().values())


class Inquiries:
    """The questions that are under way.

    Any thread of the script may ask. The runner's thread passes the questions on, and takes the answers.

    Args:
        send: Puts a question into the runner's inbox.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        lifetime: Lifetime,
        send: Callable[[CountsRequest | Recording], None],
    ) -> None:
        self._supervisor = supervisor
        self._lifetime = lifetime
        self._send = send
        self._numbers = itertools.count(1)
        self._asked: dict[int, set[str] | None] = {}
        """A request for counts that a thread waits for → the workers that must still answer; None until it is
        sent."""
        self._recordings: list[Recording] = []

    def counts(self, timeout_s: float) -> tuple[list[WorkerState], set[str]]:
        """Return the workers, and the names of those that have not reported their counts.

        Wait until all running workers have reported their counts, or the time is up.

        Raises:
            NotRunningError: this is a forked child of the launching process.
        """
        self._lifetime.refuse_in_fork()
        number = next(self._numbers)
        workers = self._supervisor.workers

        def silent() -> set[str]:
            return {w.name for w in workers.values() if not w.has_answered(number)}

        def is_over() -> bool:
            has_ended = self._lifetime.done.is_set()
            return has_ended or (self._asked[number] is not None and not silent())

        with self._lifetime.changed:
            self._asked[number] = None
            self._send(CountsRequest(number))
            try:
                self._lifetime.changed.wait_for(is_over, timeout_s)
            finally:
                del self._asked[number]
            return list(workers.values()), silent()

    def record(self, seconds: float, timeout_s: float) -> Recording:
        """Have all workers record what they do for `seconds`, and return when all have reported it.

        Args:
            timeout_s: How long workers may take to report after the recording.

        Raises:
            NotRunningError: this is a forked child of the launching process.
        """
        self._lifetime.refuse_in_fork()
        recording = Recording(next(self._numbers), seconds)
        self._send(recording)
        deadline = recording.until_s + timeout_s
        with self._lifetime.changed:
            try:
                # If all workers report or end before the time is up, no report wakes this thread at that
                # moment.
                while not (self._lifetime.done.is_set() or recording.is_complete()):
                    now = time.monotonic()
                    if now >= deadline:
                        break
                    end = recording.until_s if now < recording.until_s else deadline
                    self._lifetime.changed.wait(end - now)
            finally:
                self._recordings = [r for r in self._recordings if r is not recording]
        return recording

    # The methods below are called in the runner's thread, with the lock held.

    def ask(self, request: CountsRequest) -> list[Decided]:
        """Return the commands that ask all running workers for their counts."""
        commands = self._supervisor.request_counts(request.number)
        if request.number in self._asked:  # else the thread that asked waits no longer
            self._asked[request.number] = {command.worker for command in commands}
        return [*commands]

    def is_answered(self, report: EdgesCounted) -> bool:
        """Return True if this report completes the answers to a request for counts."""
        workers = self._supervisor.workers
        is_complete = False
        for number, names in self._asked.items():
            if names is not None and workers[report.worker].has_answered(number):
                names.discard(report.worker)
                # Some of the workers that have not answered may have ended.
                is_complete |= all(workers[name].has_answered(number) for name in names)
        return is_complete

    def begin(self, recording: Recording) -> None:
        """Begin a recording."""
        self._recordings.append(recording)

    def add(self, report: SpansRecorded) -> None:
        """Take a worker's report of what it has recorded."""
        for recording in self._recordings:
            recording.add(report)

    def observe(self) -> list[Decided]:
        """Note for each recording what has changed, and return the commands that tell workers to record."""
        commands: list[Decided] = []
        for recording in self._recordings:
            commands += recording.observe(self._supervisor.workers.values(), time.monotonic())
        return commands
