"""Watched: what the supervisor knows of one worker, and the states it goes through."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from launchpad.launch.plan import WorkerPlan
from launchpad.outcome import Outcome


class State(StrEnum):
    """Where a worker is in its life."""

    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"
    RESTARTING = "restarting"
    """It has ended, and will be started again: when its time has come, and others have ended too."""


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
"""The life of a worker. What is not in here changes nothing: it comes too late."""

_ALIVE = (State.STARTING, State.RUNNING, State.STOPPING)


@dataclass(eq=False)
class Watched:
    """One worker of a launch.

    Attributes:
      runs: Whether it has something to run; None while only its constructor knows.
      is_done: What it had to run has ended well; it serves on.
      asked, killed: What it was told in this attempt.
      is_late: It was killed because it was not ready in time.
      pid: Its process, 0 while there is none.
      started_at: When its last attempt began, monotonic seconds.
      ready_by: When it must be ready, monotonic seconds.
      waits_for: Whom its constructor waits for, and when it last said so.
      outcome: How its last attempt ended.
    """

    plan: WorkerPlan
    state: State = State.PENDING
    attempt: int = 0
    runs: bool | None = None
    is_done: bool = False
    asked: bool = False
    killed: bool = False
    is_late: bool = False
    pid: int = 0
    started_at: float | None = None
    ready_by: float | None = None
    waits_for: dict[str, float] = field(default_factory=dict)
    outcome: Outcome | None = None

    @property
    def name(self) -> str:
        """The worker's."""
        return self.plan.name

    @property
    def is_alive(self) -> bool:
        """Whether something of it runs."""
        return self.state in _ALIVE

    @property
    def has_finished(self) -> bool:
        """Whether the program need not wait for it any more."""
        return self.is_done or self.state is State.ENDED

    def move(self, event: str) -> bool:
        """Goes where the table says; False, and nothing changes, if it says nothing."""
        goes_to = TRANSITIONS.get((self.state, event))
        self.state = goes_to or self.state
        return goes_to is not None

    def begin(self, now: float) -> None:
        """A new attempt."""
        self.move("start")
        self.attempt += 1
        self.started_at = now
        self.asked = self.killed = self.is_late = self.is_done = False
        self.waits_for.clear()
        limit = self.plan.restart.start_timeout_s
        self.ready_by = None if limit is None else now + limit

    def end(self, outcome: Outcome) -> None:
        """The attempt is over."""
        self.outcome = outcome
        self.ready_by, self.pid = None, 0
        self.move("end")
