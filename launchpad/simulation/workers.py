"""Simulated workers: they execute the supervisor's commands on a virtual clock, and report events.

StartWorker ──▶ a host with room ── start_s ──▶ Ready ── run_s ──▶ Ended or Done
                                                  └── a failure of the worker or its host ──▶ Ended
StopWorker, KillWorker ──▶ Ended, at once
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from typing import NamedTuple

from launchpad.courier.light_dataclass import dataclass
from launchpad.launch.backends.backend import Workers
from launchpad.launch.plan import LaunchPlan, WorkerPlan
from launchpad.outcome import FAILED, LOST, STOPPED, SUCCEEDED, Outcome
from launchpad.program import UNTIL_RUN
from launchpad.runtime.commands import Command, KillWorker, StartWorker, StopWorker
from launchpad.runtime.events import Done, Ended, Event, Ready
from launchpad.simulation.behaviour import Behaviour
from launchpad.simulation.clock import VirtualClock
from launchpad.simulation.hosts import HostState, RoundRobin


class SimulatedEvent(NamedTuple):
    """An entry of a simulation's history.

    Attributes:
        at_s: The virtual time, in seconds since the launch.
        subject: The worker or host; `launchpad` for a note that launchpad would print.
        what: `waits`, `starts`, `ready`, `done`, or a kind of outcome such as `failed`; for a host `fails` or
            `repaired`; `note` for a note.
        attempt: The number of the worker's attempt; 0 for hosts and notes.
        host: The host of the worker; empty while it waits for one.
        why: The cause of an end, or the text of a note.
    """

    at_s: float
    subject: str
    what: str
    attempt: int = 0
    host: str = ""
    why: str = ""


@dataclass(eq=False)
class SimulatedAttempt:
    """One attempt of a simulated worker.

    Attributes:
        host: Where it runs; None while it waits for a host.
        running_since: When it became ready; None before that, and when its work is done.
        is_done: True if its own work is done and it goes on serving.
        is_over: True if it has ended.
    """

    worker: WorkerPlan
    number: int
    host: HostState | None = None
    running_since: float | None = None
    is_done: bool = False
    is_over: bool = False


@dataclass(eq=False)
class WorkerRecord:
    """The figures of one worker.

    Attributes:
        starts: The number of attempts.
        running_s: How long it was ready and had not done its work, over all attempts.
        lost_s: How much of that time's work was lost.
        saved_s: How much of its work is saved.
        done_at: When its work was done; None while it isn't.
    """

    starts: int = 0
    running_s: float = 0.0
    lost_s: float = 0.0
    saved_s: float = 0.0
    done_at: float | None = None


class SimulatedWorkers(Workers):
    """The simulated workers of one launch, and their hosts.

    Args:
        report: Called with each event.
        note: Called with each entry of the history.
        seed: All random numbers come from it. Each host and each worker has its own sequence, so a host fails
            at the same times whatever the program's policies are.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        hosts: Sequence[HostState],
        behaviour: Behaviour,
        clock: VirtualClock,
        report: Callable[[Event], None],
        note: Callable[[SimulatedEvent], None],
        seed: int,
    ) -> None:
        self.records = {worker.name: WorkerRecord() for worker in plan.workers}
        self._plans = {worker.name: worker for worker in plan.workers}
        self._behaviour = behaviour
        self._clock = clock
        self._report = report
        self._note = note
        self._random = cache(lambda name: Random(f"{seed}/{name}"))
        self._round_robin = RoundRobin(hosts)
        self._waiting: dict[str, SimulatedAttempt] = {}
        self._attempts: dict[str, SimulatedAttempt] = {}
        for host in hosts:
            self._schedule_failure(host)

    def execute(self, command: Command) -> None:
        """Execute a command; see `Workers`. Announcements have no effect on simulated workers."""
        match command:
            case StartWorker(worker=name, attempt=number):
                attempt = SimulatedAttempt(self._plans[name], number)
                self._attempts[name] = attempt
                self.records[name].starts += 1
                self.records[name].done_at = None
                self._place(attempt)
            case StopWorker(worker=name, restarts=restarts):
                attempt = self._attempts[name]
                kind = SUCCEEDED if attempt.is_done else STOPPED
                self._end(attempt, kind, "", loses=restarts and not _saves(attempt))
            case KillWorker(worker=name, why=why):
                self._end(self._attempts[name], STOPPED, why, loses=True)

    def close(self) -> None:
        """Count the time of workers that still run."""
        for attempt in self._attempts.values():
            self._count(attempt, loses=False)

    def _place(self, attempt: SimulatedAttempt, host: HostState | None = None) -> None:
        """Start an attempt on this host, else on the next one with room. If no host has room, let it wait."""
        host = host or self._round_robin.choose(attempt.worker.resources)
        if host is None:
            self._waiting[attempt.worker.name] = attempt
            self._note_change(attempt, "waits")
            return
        host.add(attempt.worker)
        attempt.host = host
        self._note_change(attempt, "starts")
        start_s = self._behaviour.start_time_s(attempt.worker)
        self._clock.call_later(start_s, self._become_ready, attempt)

    def _become_ready(self, attempt: SimulatedAttempt) -> None:
        if attempt.is_over:
            return
        worker = attempt.worker
        work_s = self._behaviour.work_s(worker)
        attempt.running_since = self._clock.now
        self._note_change(attempt, "ready")
        self._report(Ready(worker.name, attempt.number, work_s is not None))
        left_s = math.inf
        if work_s is not None:
            left_s = max(0.0, work_s - self.records[worker.name].saved_s)
        random = self._random(worker.name)
        fails_after_s = self._behaviour.fails_after_s(worker, attempt.number, random)
        if fails_after_s < left_s:
            self._clock.call_later(
                fails_after_s, self._end, attempt, FAILED, "a simulated failure", True
            )
        else:
            self._clock.call_later(left_s, self._finish, attempt)

    def _finish(self, attempt: SimulatedAttempt) -> None:
        """Note that a worker has done its work. It ends, or goes on serving as its policy says."""
        if attempt.is_over:
            return
        worker = attempt.worker
        self._count(attempt, loses=False)
        self.records[worker.name].saved_s = 0.0
        self.records[worker.name].done_at = self._clock.now
        if worker.policy.serves_until == UNTIL_RUN:
            self._end(attempt, SUCCEEDED, "", loses=False)
            return
        attempt.is_done = True
        self._note_change(attempt, "done")
        self._report(Done(worker.name, attempt.number))

    def _end(self, attempt: SimulatedAttempt, kind: str, why: str, loses: bool) -> None:
        """End an attempt, unless it has ended. `loses` is True if it cannot save at its end."""
        if attempt.is_over:
            return
        attempt.is_over = True
        worker = attempt.worker
        phase = "init" if attempt.running_since is None and not attempt.is_done else "run"
        self._count(attempt, loses)
        self._note_change(attempt, kind, why)
        host = attempt.host
        if host is None:
            del self._waiting[worker.name]
        else:
            host.remove(worker)
        where = host.name if host is not None else ""
        self._report(Ended(Outcome(worker.name, kind, phase, attempt.number, why, host=where)))
        if host is not None:
            self._use_room(host)

    def _count(self, attempt: SimulatedAttempt, loses: bool) -> None:
        """Add the time that an attempt has run, if it does, and what it has saved or lost of it."""
        if attempt.running_since is None:
            return
        record = self.records[attempt.worker.name]
        ran_s = self._clock.now - attempt.running_since
        attempt.running_since = None
        record.running_s += ran_s
        lost_s = self._lost_s(attempt.worker, ran_s) if loses else 0.0
        record.lost_s += lost_s
        record.saved_s += ran_s - lost_s

    def _lost_s(self, worker: WorkerPlan, ran_s: float) -> float:
        """Return how much of an attempt's time is lost if it cannot save at its end."""
        save_every_s = worker.policy.restart.save_every_s
        if save_every_s is not None:
            return ran_s % save_every_s
        # Without anything to save or to finish, a worker that only serves loses nothing.
        return 0.0 if self._behaviour.work_s(worker) is None else ran_s

    def _schedule_failure(self, host: HostState) -> None:
        if host.kind.mtbf_s < math.inf:
            up_s = self._random(host.name).expovariate(1 / host.kind.mtbf_s)
            self._clock.call_later(up_s, self._fail_host, host)

    def _fail_host(self, host: HostState) -> None:
        """End all workers of a host. They may be started again on other hosts, or later on this one."""
        host.is_up = False
        self._note(SimulatedEvent(self._clock.now, host.name, "fails"))
        for name in list(host.workers):
            self._end(self._attempts[name], LOST, f"{host.name} failed", loses=True)
        self._clock.call_later(host.kind.repair_s, self._repair, host)

    def _repair(self, host: HostState) -> None:
        host.is_up = True
        self._note(SimulatedEvent(self._clock.now, host.name, "repaired"))
        self._schedule_failure(host)
        self._use_room(host)

    def _use_room(self, host: HostState) -> None:
        """Start the attempts that wait and fit on this host, in the order in which they came."""
        for attempt in list(self._waiting.values()):
            if host.fits(attempt.worker.resources):
                del self._waiting[attempt.worker.name]
                self._place(attempt, host)

    def _note_change(self, attempt: SimulatedAttempt, what: str, why: str = "") -> None:
        host = attempt.host.name if attempt.host is not None else ""
        event = SimulatedEvent(
            self._clock.now, attempt.worker.name, what, attempt.number, host, why
        )
        self._note(event)


def _saves(attempt: SimulatedAttempt) -> bool:
    """Return True if the worker saves its work, also when it is stopped."""
    return attempt.worker.policy.restart.save_every_s is not None
