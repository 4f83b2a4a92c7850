"""A worker as the supervisor sees it: its states, and what is recorded about it."""

from __future__ import annotations

import math
from dataclasses import field, replace
from enum import StrEnum
from typing import Any

from launchpad.courier.light_dataclass import dataclass
from launchpad.courier.telemetry.registry import Counted
from launchpad.launch.plan import WorkerPlan
from launchpad.launch.rundir.history import AttemptRecord, kept
from launchpad.outcome import Outcome
from launchpad.runtime.commands import Command
from launchpad.runtime.events import EdgesCounted, Returned
from launchpad.runtime.watermarks import ENDED, OVER, SUCCEEDED


class State(StrEnum):
    """The state of a worker."""

    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"
    RESTARTING = "restarting"
    """The worker has ended. It starts again when it is time and the others of the restart have ended."""


class KillReason(StrEnum):
    """The reason why an attempt was killed."""

    NOT_READY = "not ready in time"
    SILENT = "no heartbeat in time"
    NOT_EXITED = "work done, process not exited in time"
    NOT_STOPPED = "not stopped when asked"


class Deadline(StrEnum):
    """A kind of event that must come in time."""

    READY = "ready"
    HEARTBEAT = "heartbeat"
    EXIT = "exit"
    """The end of the worker's process, after the end of its work."""


TRANSITIONS = {
    (State.PENDING, "start"): State.STARTING,
    (State.STARTING, "ready"): State.RUNNING,
    (State.STARTING, "ask"): State.STOPPING,
    (State.RUNNING, "ask"): State.STOPPING,
    (State.STARTING, "end"): State.ENDED,
    (State.RUNNING, "end"): State.ENDED,
    (State.STOPPING, "end"): State.ENDED,
    (State.ENDED, "restart"): State.RESTARTING,
    (State.RESTARTING, "start"): State.STARTING,
    (State.RESTARTING, "give up"): State.ENDED,
}
"""(state, event) → next state. An event without an entry here comes too late, and changes nothing."""


@dataclass(frozen=True)
class NextStart:
    """The next start of a worker that has ended.

    Attributes:
        due_at: The earliest time of the start, in monotonic seconds.
        count: How many restarts there have been within `within_s` seconds, including this one.
    """

    due_at: float
    count: int
    within_s: float

    def shown(self, now: float) -> str:
        """Return the text that a user reads: `again in 12 s (5th within a minute)`."""
        last_two = self.count % 100
        ending = {1: "st", 2: "nd", 3: "rd"}.get(0 if 10 < last_two < 20 else last_two % 10, "th")
        within = {60.0: "a minute", 3600.0: "an hour"}.get(self.within_s, f"{self.within_s:g} s")
        left_s = math.ceil(self.due_at - now)
        when = f"in {left_s} s" if left_s > 0 else "when those restarted with it have ended"
        return f"again {when} ({self.count}{ending} within {within})"


@dataclass(frozen=True)
class WorkerCounts:
    """The counts of a worker's calls, over all attempts.

    It is immutable, so a thread that reads it finds each attempt once: as the last one, or in the sums.

    Attributes:
        last: The latest report of the last attempt; None before its first report.
        earlier: The sums of all earlier attempts.
        is_lacking: True if an earlier attempt did not report at its end.
    """

    last: EdgesCounted | None = None
    earlier: Counted = Counted({}, {})
    is_lacking: bool = False

    @property
    def has_end(self) -> bool:
        """True if the last attempt has reported at its end."""
        return self.last is not None and self.last.is_last

    @property
    def total(self) -> Counted:
        """The sums of all attempts."""
        return self.earlier if self.last is None else self.earlier.plus(self.last.counted)

    def taking(self, report: EdgesCounted) -> WorkerCounts:
        """Return the counts with this report of the last attempt, unless a newer one came before it."""
        if self.last is not None and report.order <= self.last.order:
            return self
        return replace(self, last=report)

    def at_next_attempt(self) -> WorkerCounts:
        """Return the counts for the next attempt: the counts of the ended attempts become one sum."""
        return WorkerCounts(None, self.total, self.is_lacking or not self.has_end)


@dataclass(eq=False)
class AttemptState:
    """One attempt of a worker. The next attempt gets a new object.

    Attributes:
        started_at: When the attempt began, in monotonic seconds.
        pid: The id of its process; 0 while it has no process.
        deadlines: Expected event → the time by which it must come, in monotonic seconds.
        debugged: What a debugger does with it. While this is not empty, no heartbeat is expected.
        waits_for: Worker that its constructor waits for → when that was last reported.
        watches_ends: True if it watches for the ends of other workers' attempts.
        is_done: True if its own work has ended well, and it goes on serving.
        asked: True if it was asked to stop.
        asked_counts: The last request for counts that was sent to it; 0 for none.
        killed_for: Why it was killed; None if it was not.
        result: What it returned, if it returned anything.
    """

    started_at: float | None = None
    pid: int = 0
    deadlines: dict[Deadline, float] = field(default_factory=dict)
    debugged: str = ""
    waits_for: dict[str, float] = field(default_factory=dict)
    watches_ends: bool = False
    is_done: bool = False
    asked: bool = False
    asked_counts: int = 0
    killed_for: KillReason | None = None
    result: Returned | None = None

    def expect(self, event: Deadline, by: float | None) -> None:
        """Set the time by which an event must come; None if the event is no longer expected."""
        self.deadlines.pop(event, None)
        if by is not None:
            self.deadlines[event] = by

    def is_late(self, event: Deadline, now: float) -> bool:
        """Return True if an event should have come by now."""
        return now >= self.deadlines.get(event, math.inf)


@dataclass(eq=False)
class WorkerState:
    """One worker of a launch.

    Attributes:
        attempt: The number of its last attempt; 0 before the first one.
        current: What is known of the last attempt.
        runs: True if it has something to run; None until its constructor has returned.
        counts: The counts of its calls, over all attempts.
        outcome: How its last attempt ended.
        attempts: The records of its last attempts, with times of `time.monotonic()`.
        succeeded_attempt: The last attempt that ended well; 0 if none did.
        next_start: When its next attempt begins; None unless it is restarting by its policy.
        restart_reason: Why it is restarted, if a user asked for the restart.
    """

    plan: WorkerPlan
    state: State = State.PENDING
    attempt: int = 0
    current: AttemptState = field(default_factory=AttemptState)
    runs: bool | None = None
    counts: WorkerCounts = WorkerCounts()
    outcome: Outcome | None = None
    attempts: tuple[AttemptRecord, ...] = ()
    succeeded_attempt: int = 0
    next_start: NextStart | None = None
    restart_reason: str = ""

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def ended_attempt(self) -> int:
        """The number of its last attempt that has ended; 0 if no attempt has ended."""
        return self.attempt - self.is_alive

    @property
    def shown_state(self) -> str:
        """The state of the worker or, if it has ended, how it ended."""
        outcome = self.outcome if self.state is State.ENDED else None
        return str(outcome.kind if outcome is not None else self.state)

    def has_answered(self, number: int) -> bool:
        """Return True if the worker has answered this request, or will not answer it."""
        if self.state is not State.RUNNING or self.current.asked_counts < number:
            return True
        last = self.counts.last
        return last is not None and (last.number >= number or last.is_last)

    def end_marks(self) -> dict[str, int]:
        """Return the marks for workers that watch the ends of others; see `watermarks.py`."""
        marks = {f"{ENDED}{self.name}": self.ended_attempt}
        if self.succeeded_attempt:
            marks[f"{SUCCEEDED}{self.name}"] = self.succeeded_attempt
        if self.state is State.ENDED:
            marks[f"{OVER}{self.name}"] = self.attempt
        return marks

    @property
    def is_alive(self) -> bool:
        """True if an attempt of the worker runs."""
        return self.state in (State.STARTING, State.RUNNING, State.STOPPING)

    @property
    def has_failed(self) -> bool:
        """True if the worker has failed and is not started again."""
        return self.state is State.ENDED and self.outcome is not None and self.outcome.is_failure

    def move(self, event: str) -> bool:
        """Go to the next state. If TRANSITIONS has no entry for it, return False and change nothing."""
        next_state = TRANSITIONS.get((self.state, event))
        self.state = next_state or self.state
        return next_state is not None

    def note(self, **changes: Any) -> None:
        """Record something about its last attempt."""
        # If there is no room for a worker, it may end before its first attempt.
        if self.attempts:
            self.attempts = (*self.attempts[:-1], replace(self.attempts[-1], **changes).shortened())

    def next_beat(self, now: float) -> float | None:
        """Return when the next heartbeat must come if one came now; None if no heartbeat is expected."""
        within_s = self.plan.policy.restart.heartbeat_s
        return None if within_s is None or self.current.debugged else now + within_s

    def next_ready(self, now: float) -> float | None:
        """Return when the worker must be ready if its constructor began now; None for no limit."""
        within_s = self.plan.policy.restart.start_timeout_s
        return None if within_s is None or self.current.debugged else now + within_s

    def next_attempt(self, now: float, n_workers: int = 1) -> None:
        """Begin the next attempt. In a program with very many workers, fewer records are kept of each."""
        self.move("start")
        self.next_start = None
        self.restart_reason = ""
        if self.attempt:
            self.counts = self.counts.at_next_attempt()
        self.attempt += 1
        new = AttemptRecord(self.name, self.attempt, now)
        self.attempts = (*kept(self.attempts, n_workers), new)
        self.current = AttemptState(started_at=now)
        self.current.expect(Deadline.READY, self.next_ready(now))


@dataclass(frozen=True)
class PrintNote:
    """A command to print a note on the terminal."""

    text: str


Decided = Command | PrintNote
"""A command that the supervisor decides on."""
