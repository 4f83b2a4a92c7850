"""The supervisor: decides, and touches nothing. Reports and the time go in, commands come out.

    PENDING ──Start──▶ STARTING ──Ready──▶ RUNNING ──┐
                          │                          ├─Ended──▶ ENDED
                          └────────Ask──▶ STOPPING ──┘           (back to STARTING: a retry)

The program ends
  well   when all workers of the main groups have ended, or, without main groups, all that had something
         to run (servers alone never end it); or when somebody asked for a stop;
  badly  at the first failure that no retry covers.

Stop is ask → wait → insist, in reverse order of start: group after group is asked, the next one when the
former has ended or after a moment (it may be waiting for a server of an earlier group); who has not ended
when the grace period is over is killed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from launchpad import outcome
from launchpad.launch.backend import Done, Ended, Ready, Report, StopRequested, Waiting
from launchpad.launch.plan import LaunchPlan, WorkerPlan
from launchpad.outcome import Outcome

PENDING, STARTING, RUNNING, STOPPING, ENDED = "pending", "starting", "running", "stopping", "ended"

_STALE_WAIT_S = 2.5
"""A constructor that waits says so every second; one that has fallen silent waits no more."""

_ORDERLY_S = 0.2
"""How long a group is waited for before the one started before it is asked too."""


@dataclass(frozen=True)
class Start:
    """Start this worker."""

    worker: str
    attempt: int


@dataclass(frozen=True)
class Ask:
    """Ask this worker to stop."""

    worker: str


@dataclass(frozen=True)
class Kill:
    """End this worker, which did not stop."""

    worker: str


@dataclass(frozen=True)
class TellGone:
    """Tell all workers that this one is gone for good: it failed or has ended."""

    worker: str
    why: str


Command = Start | Ask | Kill | TellGone


@dataclass
class Watched:
    """What the supervisor knows of one worker."""

    plan: WorkerPlan
    state: str = PENDING
    attempt: int = 0
    runs: bool | None = None
    is_done: bool = False
    waits_for: dict[str, float] = field(default_factory=dict)
    """Whom its constructor waits for, and when it last said so."""
    asked: bool = False
    killed: bool = False
    outcome: Outcome | None = None


class Supervisor:
    """Watches the workers of one launch. Not thread-safe: one thread owns it.

    Args:
      plan: Who there is, in order of start.
      grace_s: How long a worker may take to stop; 0 kills at once, a negative number never kills.
    """

    def __init__(self, plan: LaunchPlan, grace_s: float) -> None:
        self.workers = {worker.name: Watched(worker) for worker in plan.workers}
        self.failures: list[Outcome] = []
        self.stop_reason = ""
        self._grace_s = grace_s
        self._stopping_since: float | None = None
        self._order = list(plan.groups)[::-1]
        self._group_asked_at: float | None = None

    def begin(self) -> list[Command]:
        """Starts everyone."""
        return [self._start(worker) for worker in self.workers.values()]

    def add(self, plan: WorkerPlan) -> list[Command]:
        """Starts one more worker, if the program is not about to end. The last to start is asked first."""
        if self.is_stopping:
            return []
        self.workers[plan.name] = Watched(plan, runs=plan.runs)
        self._order.insert(0, plan.group)
        return [self._start(self.workers[plan.name])]

    def on(self, report: Report, now: float) -> list[Command]:
        """What to do about a report that arrived at `now` (monotonic seconds)."""
        handlers: dict[type, Callable[..., list[Command]]] = {
            Ready: self._on_ready,
            Done: self._on_done,
            Waiting: self._on_waiting,
            StopRequested: self._on_stop_requested,
            Ended: self._on_ended,
        }
        return handlers[type(report)](report, now) + self.tick(now)

    def stop(self, reason: str, now: float, at_once: bool = False) -> list[Command]:
        """Begins to stop the program; once it has begun only `at_once` changes anything."""
        if at_once:
            self._grace_s = 0.0
        if self._stopping_since is None:
            self._stopping_since = now
            self.stop_reason = reason
        return self.tick(now)

    def tick(self, now: float) -> list[Command]:
        """What the time alone makes due."""
        return self._ask_next_groups(now) + self._insist(now)

    def wake_at(self) -> float | None:
        """When `tick` has something to do, if no report comes before."""
        if self._stopping_since is None or self.is_over:
            return None
        times = (
            [self._group_asked_at + _ORDERLY_S]
            if self._order and self._group_asked_at is not None
            else []
        )
        if self._grace_s >= 0 and any(not w.killed for w in self._alive()):
            times.append(self._stopping_since + self._grace_s)
        return min(times, default=None)

    @property
    def is_stopping(self) -> bool:
        """Whether the end has begun."""
        return self._stopping_since is not None

    @property
    def is_over(self) -> bool:
        """Whether all workers have ended and none is to be started again."""
        return all(worker.state == ENDED for worker in self.workers.values())

    def _on_ready(self, report: Ready, now: float) -> list[Command]:
        worker = self.workers[report.worker]
        if report.attempt != worker.attempt or worker.state == ENDED:
            return []
        worker.runs = report.runs
        if worker.state == STARTING:
            worker.state = RUNNING
        return self._stop_if_done(now)

    def _on_done(self, report: Done, now: float) -> list[Command]:
        worker = self.workers[report.worker]
        if report.attempt != worker.attempt:
            return []
        worker.is_done = True
        return self._stop_if_done(now)

    def _on_waiting(self, report: Waiting, now: float) -> list[Command]:
        worker = self.workers[report.worker]
        worker.waits_for[report.on] = now
        ring = self._ring_through(report.worker, now)
        if not ring or worker.state != STARTING:
            return []
        return self._fail(_deadlock(ring, worker), now)

    def _on_stop_requested(self, report: StopRequested, now: float) -> list[Command]:
        return self.stop(f"{report.worker} called lp.stop()", now)

    def _on_ended(self, report: Ended, now: float) -> list[Command]:
        worker = self.workers[report.outcome.worker]
        if report.outcome.attempt != worker.attempt or worker.state == ENDED:
            return []  # an attempt that was replaced has no say
        worker.state, worker.outcome = ENDED, report.outcome
        if not report.outcome.is_failure:
            return self._stop_if_done(now) or self._tell_ended(worker)
        if self._may_retry(worker):
            return [self._start(worker)]
        return self._fail(report.outcome, now)

    def _tell_ended(self, worker: Watched) -> list[Command]:
        """A call to a server that has ended would wait for ever, if nobody said so."""
        if self.is_stopping or not worker.plan.endpoints or worker.outcome is None:
            return []
        return [
            TellGone(
                worker.plan.name,
                f"{worker.outcome.headline().rstrip(': ')}: it has ended and serves no more",
            )
        ]

    def _fail(self, failed: Outcome, now: float) -> list[Command]:
        self.failures.append(failed)
        told: list[Command] = [TellGone(failed.worker, failed.headline())]
        return told + self.stop(f"{failed.worker} failed", now)

    def _may_retry(self, worker: Watched) -> bool:
        return not self.is_stopping and worker.attempt <= worker.plan.retries

    def _start(self, worker: Watched) -> Command:
        worker.state, worker.attempt, worker.outcome = STARTING, worker.attempt + 1, None
        worker.waits_for.clear()
        worker.is_done = False
        return Start(worker.plan.name, worker.attempt)

    def _stop_if_done(self, now: float) -> list[Command]:
        if self.is_stopping or not self._is_done():
            return []
        return self.stop("all work is done", now)

    def _is_done(self) -> bool:
        """Whether nothing is left to wait for. Who is not ready yet may still turn out to run something."""
        workers = list(self.workers.values())
        mains = [worker for worker in workers if worker.plan.main]
        if mains:
            return all(_has_finished(worker) for worker in mains)
        if any(w.runs is None and w.state != ENDED for w in workers):
            return False
        runners = [w for w in workers if w.runs or (w.state == ENDED and w.runs is None)]
        return bool(runners) and all(_has_finished(worker) for worker in runners)

    def _ask_next_groups(self, now: float) -> list[Command]:
        if not self.is_stopping:
            return []
        commands: list[Command] = []
        while self._order and self._may_ask_next(now):
            group = self._order.pop(0)
            commands += [self._ask(w) for w in self._alive() if w.plan.group == group]
            self._group_asked_at = now
        return commands

    def _may_ask_next(self, now: float) -> bool:
        if self._group_asked_at is None or now >= self._group_asked_at + _ORDERLY_S:
            return True
        return all(not worker.asked for worker in self._alive())

    def _ask(self, worker: Watched) -> Command:
        worker.state, worker.asked = STOPPING, True
        return Ask(worker.plan.name)

    def _insist(self, now: float) -> list[Command]:
        if (
            self._stopping_since is None
            or self._grace_s < 0
            or now < self._stopping_since + self._grace_s
        ):
            return []
        late = [worker for worker in self._alive() if not worker.killed]
        for worker in late:
            worker.killed = True
        return [Kill(worker.plan.name) for worker in late]

    def _alive(self) -> Sequence[Watched]:
        return [worker for worker in self.workers.values() if worker.state not in (PENDING, ENDED)]

    def _ring_through(self, start: str, now: float) -> list[str]:
        """The constructors that wait for each other in a ring through `start`, if they do."""
        came_from = {start: ""}
        to_visit = [start]
        while to_visit:
            name = to_visit.pop()
            for other in self._waited_for(name, now):
                if other == start:
                    return _path_to(name, came_from)
                if other not in came_from:
                    came_from[other] = name
                    to_visit.append(other)
        return []

    def _waited_for(self, name: str, now: float) -> list[str]:
        """Whom a worker that is being built waits for."""
        worker = self.workers.get(name)
        if worker is None or worker.state != STARTING:
            return []
        return [other for other, said in worker.waits_for.items() if now - said < _STALE_WAIT_S]


def _path_to(name: str, came_from: dict[str, str]) -> list[str]:
    path = []
    while name:
        path.append(name)
        name = came_from[name]
    return path[::-1]


def _has_finished(worker: Watched) -> bool:
    return worker.is_done or worker.state == ENDED


def _deadlock(ring: list[str], worker: Watched) -> Outcome:
    return Outcome(
        worker=worker.plan.name,
        kind=outcome.FAILED,
        phase="init",
        attempt=worker.attempt,
        cause=f"constructors wait for each other: {' → '.join([*ring, ring[0]])}",
        error_type="deadlock",
        hint="make one of these calls in run(), or at the first use, not in the constructor",
    )
