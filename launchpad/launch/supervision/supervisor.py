"""The supervisor, which only makes decisions. Reports and the time go in, commands come out.

The states of a worker are in `worker_state.py`, the rules for restarts in `restart.py`. The program ends
  well   when all workers of the main groups have ended; without main groups, when all workers that had
         something to run have ended (servers alone never end it); or when a stop was requested;
  badly  at the first failure that no restart policy covers.
The supervisor finds constructors that wait for each other, while they wait. That is a failure, too.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from launchpad import outcome
from launchpad.launch.plan import LaunchPlan, WorkerPlan
from launchpad.launch.supervision.barriers import Barriers
from launchpad.launch.supervision.due_times import DueTimes
from launchpad.launch.supervision.progress import named
from launchpad.launch.supervision.restart import (
    SILENT,
    START_TIMEOUT,
    Decision,
    Reason,
    RestartAction,
    decide,
    given_up,
)
from launchpad.launch.supervision.restarting import Restarting
from launchpad.launch.supervision.roster import (
    ALIVE_OR_BACK,
    HAS_FAILED,
    HAS_RUN,
    HAS_WORK,
    KEEPS_MAIN,
    MAY_END_MAIN,
    Roster,
)
from launchpad.launch.supervision.shutdown import Shutdown
from launchpad.launch.supervision.worker_state import (
    Deadline,
    Decided,
    KillReason,
    NextStart,
    PrintNote,
    State,
    WorkerState,
)
from launchpad.outcome import Outcome
from launchpad.program import UNTIL_GROUP
from launchpad.restart_policy import GROUP, WORKER
from launchpad.runtime import events
from launchpad.runtime.commands import (
    AnnounceGone,
    AnnounceWatermarks,
    KillWorker,
    StartWorker,
    StopWorker,
)
from launchpad.runtime.watermarks import COUNTS, RESTARTED

_log = logging.getLogger("launchpad.supervision")

_STALE_WAIT_S = 2.5
"""Seconds for which a constructor counts as waiting after its last report that it waits. While it waits, it
reports this every second."""


_LATE_S = 1.0
"""Seconds by which a check of heartbeats may come late. A later check says nothing about the workers."""

_EXIT_S = 5.0
"""The least seconds that a worker's process gets for its exit, since large libraries take a while."""


class _RestartScope(NamedTuple):
    """The workers that are restarted together.

    Attributes:
        name: The name of these workers in the note that the user reads.
        members: The workers, including the one that has ended.
        due_at: When a restart is due for which these workers wait already. The latest time if there are
            several restarts, 0 if there is no restart.
    """

    name: str
    members: list[WorkerState]
    due_at: float


class Supervisor:
    """The supervisor of one launch. Not thread-safe: one thread owns it. Times are monotonic seconds.

    No decision about one worker looks at all workers, since there may be thousands. Instead, each attribute
    holds what one kind of decision has to look at. So there are 17 of them.

    Args:
        plan: The plan, with the workers in the order in which they are started.
        grace_s: How long a worker may take to stop. With 0 it is killed at once, with a negative number
            never.

    Attributes:
        failures: The failure that ended the program, and the failures that came after it.
        stop_reason: Why the program stops; empty while it does not.
        was_cut_short: True if the program stops because the cluster is about to end it.
    """

    def __init__(self, plan: LaunchPlan, grace_s: float) -> None:
        self.workers: dict[str, WorkerState] = {}
        self.failures: list[Outcome] = []
        self.stop_reason = ""
        self.was_cut_short = False
        self._grace_s = grace_s
        self._roster = Roster()
        self._limits = DueTimes(_limit_at)
        self._beats = DueTimes(_beat_at)
        self._stop: Shutdown | None = None
        self._restarting = Restarting()
        self._restart_history: dict[str, list[tuple[float, str]]] = {}
        # It is replaced, not changed, since commands hold it.
        self._gone: Mapping[str, str] = {}
        self._barriers = Barriers(self._roster.groups)
        self._watchers: dict[str, WorkerState] = {}
        # Groups in which a worker has done its work since the others were last looked at.
        self._groups_to_stop: set[str] = set()
        self._is_awaited = False
        self._has_noted_endless = False
        for worker in plan.workers:
            self.workers[worker.name] = WorkerState(worker)
            self._roster.add(self.workers[worker.name])

    def start_all(self, now: float = 0.0) -> list[Decided]:
        return [c for worker in self.workers.values() for c in self._start_attempt(worker, now)]

    def add(self, plan: WorkerPlan, now: float = 0.0) -> list[Decided]:
        """Start one more worker, unless the program is stopping. It is stopped before all earlier workers."""
        if self.is_stopping:
            return []
        self.workers[plan.name] = WorkerState(plan, runs=True)
        self._roster.add(self.workers[plan.name], stops_first=True)
        return self._start_attempt(self.workers[plan.name], now)

    def on(self, report: events.Event, now: float) -> list[Decided]:
        """Return what to do about a report that arrived at `now`.

        A report on an earlier attempt changes nothing.
        """
        commands: list[Decided] = []
        about = report.outcome if isinstance(report, events.Ended) else report
        worker = self.workers[about.worker]
        is_late = worker.attempt != getattr(about, "attempt", worker.attempt)
        match report:
            case events.Waiting(on=target):
                worker.current.waits_for[target] = now
                deadlock = self._deadlock(worker, now)
                if deadlock is not None:
                    commands = self._fail(deadlock, now)
            case events.JobEnding(reason=reason) if not self.is_stopping:
                self.was_cut_short = True
                commands = [PrintNote(f"stopping: {reason}"), *self.stop(reason, now)]
            case events.StopRequested(name):
                commands = self.stop(f"{name} called lp.stop()", now)
            case events.Done() if not is_late:
                worker.current.is_done = True
                self._roster.update(worker)
                self._expect(worker, Deadline.HEARTBEAT, None)
                self._groups_to_stop.add(worker.plan.group)
                commands = [
                    *self._barriers.ended(worker, for_good=True),
                    *self._end_group(worker, now),
                ]
                commands += self._stop_if_done(now)
            case _ if is_late or not worker.is_alive:
                pass
            case events.ProcessStarted(pid=pid):
                worker.current.pid = pid
            case events.Ready(runs=runs):
                worker.runs = runs
                self._expect(worker, Deadline.READY, None)
                self._expect(worker, Deadline.HEARTBEAT, worker.next_beat(now) if runs else None)
                self._move(worker, "ready")
                worker.note(ready=now)
                commands = self._stop_if_done(now)
            case events.Returned():
                worker.current.result = report
            case events.EdgesCounted():
                worker.counts = worker.counts.taking(report)
            case events.EndsWatched():
                worker.current.watches_ends = True
                self._watchers[worker.name] = worker
                have_ended = self._roster.have_ended.values()
                values = {name: n for w in have_ended for name, n in w.end_marks().items()}
                commands = [AnnounceWatermarks(worker.name, values)]
            case events.BarrierReached(name=name, number=number):
                commands = [*self._barriers.reached(worker, name, number)]
            case events.BarrierLeft(name=name, number=number):
                commands = [*self._barriers.left(worker, name, number)]
            case events.Heartbeat(is_last=is_last) if (
                Deadline.HEARTBEAT in worker.current.deadlines
            ):
                next_beat = None if is_last else worker.next_beat(now)
                self._expect(worker, Deadline.HEARTBEAT, next_beat)
            case events.Debugged(what=what):
                worker.current.debugged = what
                is_starting = worker.state is State.STARTING
                ready_by = worker.next_ready(now) if is_starting else None
                self._expect(worker, Deadline.READY, ready_by)
                is_running = (
                    worker.runs and not worker.current.is_done and worker.state is State.RUNNING
                )
                next_beat = worker.next_beat(now) if is_running else None
                self._expect(worker, Deadline.HEARTBEAT, next_beat)
            case events.Exiting():
                worker.current.deadlines.clear()
                self._expect(worker, Deadline.EXIT, self._exit_by(worker, now))
            case events.Ended(end):
                commands = self._on_ended(worker, end, now)
        return commands + self.tick(now)

    def stop(self, reason: str, now: float, at_once: bool = False) -> list[Decided]:
        """Begin to stop the program. If the stop has begun already, only `at_once` changes anything."""
        if self._stop is None:
            _log.info("the program stops: %s", reason)
            self.stop_reason = reason
            for restart in self._restarting.clear():
                for worker in restart.members:
                    self._move(worker, "give up")
                    worker.next_start = None
                    worker.restart_reason = ""
            for worker in self.workers.values():
                self._expect(worker, Deadline.HEARTBEAT, None)
            self._stop = Shutdown(self.workers.values(), self._roster.ranks, now, self._grace_s)
        if at_once:
            self._stop.kill_at_once()
        return self.tick(now)

    def restart(self, name: str, reason: str, now: float) -> list[Decided]:
        """Begin to restart a worker and all that its policy restarts with it, unless the program stops.

        Workers that wait for a restart wait no longer, and workers that have ended are started too. A restart
        of this kind is not a failure, and no policy counts it.
        """
        if self.is_stopping:
            return []
        members = self._restarted_with(self.workers[name]).members
        over = [m for m in members if m.state is State.ENDED]
        for member in members:
            # The program must wait for the work of the next attempt.
            member.current.is_done = False
            self._move(member, "restart")
            member.next_start = None
            self._expect(member, Deadline.HEARTBEAT, None)
            member.restart_reason = reason
        self._restarting.add(Shutdown(members, self._roster.ranks, now, self._grace_s, now))
        note = PrintNote(f"{named(members)}: {reason}")
        return [note, *self._announce_ends(_restarted(over)), *self.tick(now)]

    def tick(self, now: float) -> list[Decided]:
        """Return the commands that are due by now, without any report."""
        if self._stop is not None:
            return self._stop.tick(now)
        commands: list[Decided] = []
        for worker in self._limits.take(now):
            if worker.current.is_late(Deadline.READY, now):
                worker.current.killed_for = KillReason.NOT_READY
                limit = worker.plan.policy.restart.start_timeout_s
                commands.append(KillWorker(worker.name, f"was not ready within {limit:g} s"))
            else:
                worker.current.killed_for = KillReason.NOT_EXITED
                why = "has done its work, and its process does not exit"
                commands.append(KillWorker(worker.name, why))
        for restart in self._restarting.take(now):
            if now < (restart.restart_at or 0.0) or restart.is_running:
                commands += restart.tick(now)
                self._restarting.update(restart)
            else:
                self._restarting.remove(restart)
                commands += [c for w in restart.members for c in self._start_attempt(w, now)]
        return commands

    def wake_at(self) -> float | None:
        """Return when `tick` has something to do, if no report comes before that; None if never."""
        if self._stop is not None:
            return self._stop.wake_at()
        times = (self._limits.next_at(), self._beats.next_at(), self._restarting.next_at())
        return min((time for time in times if time is not None), default=None)

    @property
    def is_stopping(self) -> bool:
        return self._stop is not None

    @property
    def is_over(self) -> bool:
        """True if all workers have ended and none will be started again."""
        return not self._roster.count(ALIVE_OR_BACK)

    def _move(self, worker: WorkerState, event: str) -> None:
        """Move a worker to its next state, and count it as what it then is."""
        worker.move(event)
        self._roster.update(worker)

    def _expect(self, worker: WorkerState, event: Deadline, by: float | None) -> None:
        """Set the time by which an event of a worker must come; None if it is no longer expected."""
        worker.current.expect(event, by)
        if by is not None:
            queue = self._beats if event is Deadline.HEARTBEAT else self._limits
            queue.update(worker)

    def _start_attempt(self, worker: WorkerState, now: float) -> list[Decided]:
        """Start a worker's next attempt. From the second one on, tell it which workers are gone."""
        worker.next_attempt(now, len(self.workers))
        self._roster.update(worker)
        self._limits.update(worker)
        self._barriers.restarted(worker)
        commands: list[Decided] = [StartWorker(worker.name, worker.attempt)]
        if worker.name in self._gone:
            self._gone = {name: why for name, why in self._gone.items() if name != worker.name}
            commands.append(AnnounceGone({worker.name: ""}))
        if worker.attempt > 1 and self._gone:
            commands.append(AnnounceGone(self._gone, worker.name))
        return commands

    def _on_ended(self, worker: WorkerState, end: Outcome, now: float) -> list[Decided]:
        """Record how a worker ended, and decide what follows."""
        policy = worker.plan.policy.restart
        error_type = ""
        cause = ""
        if worker.current.killed_for is KillReason.NOT_READY:
            error_type = START_TIMEOUT
            cause = f"was not ready within start_timeout_s={policy.start_timeout_s:g}"
        elif worker.current.killed_for is KillReason.SILENT and (
            end.hung or end.kind == outcome.STOPPED
        ):
            error_type = SILENT
            cause = f"sent no heartbeat for heartbeat_s={policy.heartbeat_s:g}"
        if error_type:
            end = replace(
                end,
                kind=outcome.FAILED,
                cause=f"{cause}, and was killed",
                error_type=error_type,
                hint="its log ends with the stacks of all its threads: see where it was",
            )
        if worker.current.killed_for is KillReason.NOT_EXITED and end.hung:
            end = replace(end, kind=outcome.FAILED)
        if end.is_failure and self._has_stopped_in_order(end.blames):
            end = replace(end, kind=outcome.STOPPED, cause=f"{end.cause}, while stopping")
        if worker.restart_reason:
            besides = f"; {end.cause}" if end.is_failure or end.hung else ""
            end = replace(end, cause=f"{worker.restart_reason}{besides}")
        worker.current.pid = 0
        worker.note(ended=now, outcome=end)
        # The record's outcome is shorter. If there is no room for a worker, it may have no record.
        worker.outcome = worker.attempts[-1].outcome if worker.attempts else end
        if end.kind == outcome.SUCCEEDED:
            worker.succeeded_attempt = worker.attempt
        worker.current.deadlines.clear()
        self._watchers.pop(worker.name, None)
        self._roster.have_ended[worker.name] = worker
        self._move(worker, "end")
        self._restarting.ended(worker)
        if self._stop is not None:
            self._stop.ended(worker)
        commands = self._follow_up(worker, end, now)
        # Tell workers that watch for ends, workers at a barrier, and workers that serve until their group is
        # done.
        if not self.is_stopping:
            commands += self._announce_ends(worker.end_marks())
            commands += self._barriers.ended(worker, for_good=worker.state is State.ENDED)
            commands += self._end_group(worker, now)
        return commands

    def _announce_gone(self, name: str, why: str) -> AnnounceGone:
        """Note that a worker is gone for good, and return the command that announces it to all."""
        self._gone = {**self._gone, name: why}
        return AnnounceGone({name: why})

    def _has_stopped_in_order(self, name: str) -> bool:
        """Return True if this worker ends, or has ended, because the program stops.

        Stops reach workers one after another. So a server may be gone before a worker that waits in a call to
        it is asked to stop. The error of that lost call is then not a failure of the program. If the program
        stops because it has failed, the error is reported with the other consequences.
        """
        if self.failures or not self.is_stopping:
            return False
        worker = self.workers.get(name)
        return worker is not None and worker.current.asked and not worker.has_failed

    def _announce_ends(self, values: Mapping[str, int]) -> list[Decided]:
        """Return the commands that send these marks to all workers that watch for the ends of others."""
        return [AnnounceWatermarks(name, values) for name in self._watchers]

    def _end_group(self, worker: WorkerState, now: float) -> list[Decided]:
        """If all workers of a group have done their work, stop those that serve until then."""
        group = worker.plan.group
        is_over = not self._roster.count(HAS_WORK, group)
        if self.is_stopping or not is_over or group not in self._groups_to_stop:
            return []
        self._groups_to_stop.remove(group)
        servers = [
            w
            for w in self._roster.groups[group]
            if w.current.is_done
            and w.is_alive
            and not w.current.asked
            and w.plan.policy.serves_until == UNTIL_GROUP
        ]
        for member in servers:
            member.move("ask")
            member.current.asked = True
            self._restarting.asked(member)
            self._expect(member, Deadline.HEARTBEAT, None)
            self._expect(member, Deadline.EXIT, self._exit_by(member, now))
        return [StopWorker(member.name) for member in servers]

    def _exit_by(self, worker: WorkerState, now: float) -> float | None:
        """Return the time by which a worker's process must exit if its work ended now; None for no limit."""
        grace_s = worker.plan.grace_s(self._grace_s)
        return now + max(grace_s, _EXIT_S) if grace_s >= 0 else None

    def overdue(self, now: float) -> list[Decided]:
        """Kill workers that have been silent for too long. It is called when all reports have been processed.

        If the call comes late, this process itself did not run for a while, and may receive reports only now.
        """
        silent = self._beats.take(now)
        if any(now - w.current.deadlines[Deadline.HEARTBEAT] > _LATE_S for w in silent):
            for worker in silent:
                self._expect(worker, Deadline.HEARTBEAT, now + _LATE_S)
            return []
        commands: list[Decided] = []
        for worker in silent:
            self._expect(worker, Deadline.HEARTBEAT, None)
            worker.current.killed_for = KillReason.SILENT
            limit = worker.plan.policy.restart.heartbeat_s
            commands.append(KillWorker(worker.name, f"sent no heartbeat for {limit:g} s"))
        return commands

    def _follow_up(self, worker: WorkerState, end: Outcome, now: float) -> list[Decided]:
        """Restart the worker, leave it, or stop the program."""
        policy = worker.plan.policy.restart
        if worker in self._restarting:
            self._move(worker, "restart")
            return []
        scopes = {WORKER: worker.name, GROUP: f"group {worker.plan.group}"}
        counted_as = scopes.get(policy.scope, "program")
        history = self._restart_history.setdefault(counted_as, [])
        restarts = [at for at, _ in history]
        n_failed = self._roster.count(HAS_FAILED, worker.plan.group)
        n_left = len(self._roster.groups[worker.plan.group]) - n_failed - (not worker.has_failed)
        decision = decide(policy, end, restarts, now, is_stopping=self.is_stopping, n_left=n_left)
        if not self.is_stopping:
            _log.debug(
                "%s has ended, decision: %s, because %s (restarts before: %d, delay: %g s)",
                worker.name,
                decision.action,
                decision.reason,
                decision.n_before,
                decision.delay_s,
            )
        if decision.action is RestartAction.RESTART:
            return self._restart(worker, end, decision, history, now)
        if decision.action is RestartAction.GIVE_UP:
            earlier = [failure for at, failure in history if now - at < policy.within_s]
            return self._fail(given_up(worker, end, decision.reason, earlier), now)
        commands: list[Decided] = []
        if decision.reason is Reason.ENOUGH_LEFT:
            commands = [PrintNote(f"{end.headline()}; not started again: {decision.reason}")]
        commands += self._stop_if_done(now)
        if self.is_stopping or not worker.plan.endpoints:
            return commands
        # Otherwise, a call to a server that has ended would wait forever.
        why = f"{end.headline().rstrip(': ')}: it has ended and serves no more"
        return [*commands, self._announce_gone(worker.name, why)]

    def _restart(
        self,
        worker: WorkerState,
        end: Outcome,
        decision: Decision,
        history: list[tuple[float, str]],
        now: float,
    ) -> list[Decided]:
        """Begin to restart the worker and all that its policy restarts with it."""
        # Forget failures that no policy counts any more.
        longest_s = self._roster.longest_window_s
        history[:] = [(at, failure) for at, failure in history if now - at < longest_s]
        history.append((now, end.headline()))

        policy = worker.plan.policy.restart
        scope = self._restarted_with(worker)
        members = scope.members
        due_at = max(now + decision.delay_s, scope.due_at)
        next_start = NextStart(due_at, decision.n_before + 1, policy.within_s)
        over = [m for m in members if m.state is State.ENDED and m is not worker]
        for member in members:
            self._move(member, "restart")
            member.next_start = next_start
            self._expect(member, Deadline.HEARTBEAT, None)
        self._restarting.add(Shutdown(members, self._roster.ranks, now, self._grace_s, due_at))

        when = f"in {decision.delay_s:g} s" if decision.delay_s else "now"
        count = f"{decision.n_before + 1} of {policy.max_restarts} within {policy.within_s:g} s"
        headline = end.headline().rstrip(": ")
        note = PrintNote(f"{headline}; {scope.name} is started again {when} ({count})")
        return [note, *self._announce_ends(_restarted(over))]

    def _restarted_with(self, worker: WorkerState) -> _RestartScope:
        """Return the workers that are restarted with this one. Take over their pending restarts."""
        policy = worker.plan.policy.restart
        group = worker.plan.group
        due_at = 0.0
        if policy.scope == WORKER:
            name = "it"
            members = [worker]
        elif policy.scope == GROUP:
            name = f"group {group!r}"
            members = list(self._roster.groups[group])
        else:
            name = "the program"
            members = list(self.workers.values())
        pending = self._restarting.of(members)
        if pending:
            together = {*members, *(member for restart in pending for member in restart.members)}
            members = [w for w in self.workers.values() if w in together]
        for restart in pending:
            self._restarting.remove(restart)
            due_at = max(due_at, restart.restart_at or 0.0)
        return _RestartScope(name, members, due_at)

    def _deadlock(self, start: WorkerState, now: float) -> Outcome | None:
        """Return the failure of a worker whose constructor waits in a cycle of constructors; else None."""
        path_to = {start.name: [start.name]}
        unvisited = [start.name]
        while unvisited:
            name = unvisited.pop()
            worker = self.workers.get(name)
            if worker is None or worker.state is not State.STARTING:
                continue
            recent = (o for o, at in worker.current.waits_for.items() if now - at < _STALE_WAIT_S)
            for target in recent:
                if target == start.name:
                    return Outcome(
                        worker=start.name,
                        kind=outcome.FAILED,
                        phase="init",
                        attempt=start.attempt,
                        cause=f"constructors wait for each other: {' → '.join([*path_to[name], target])}",
                        error_type="deadlock",
                        hung=True,
                        hint="make one of these calls in run(), or at the first use, not in the constructor",
                    )
                if target not in path_to:
                    path_to[target] = [*path_to[name], target]
                    unvisited.append(target)
        return None

    def _fail(self, failure: Outcome, now: float) -> list[Decided]:
        """Stop the program because of this failure."""
        self.failures.append(failure)
        why = failure.headline()
        gone = self._announce_gone(failure.worker, why)
        commands = self.stop(f"{failure.worker} failed", now)
        return [PrintNote(why), gone, *commands]

    def _stop_if_done(self, now: float) -> list[Decided]:
        """Stop the program if no work is left. A worker that is not ready yet may still have work."""
        if self._roster.has_main:
            is_done = not self._roster.count(KEEPS_MAIN)
        else:
            is_done = not self._roster.count(HAS_WORK) and self._roster.count(HAS_RUN) > 0
        if self.is_stopping or not is_done:
            return self._note_if_endless()
        return self.stop("all work is done", now)

    def request_counts(self, number: int) -> list[AnnounceWatermarks]:
        """Ask all running workers for their counts."""
        running = [w for w in self.workers.values() if w.state is State.RUNNING]
        for worker in running:
            worker.current.asked_counts = number
        return [AnnounceWatermarks(w.name, {COUNTS: number}) for w in running]

    def await_end(self) -> list[Decided]:
        """Note that the script waits for the end without a limit. If no end will come, say so."""
        self._is_awaited = True
        return self._note_if_endless()

    def _note_if_endless(self) -> list[Decided]:
        """Say, once, that the program will not end by itself.

        This is known when all workers are ready, and no worker that the program waits for runs anything.
        """
        if self._has_noted_endless or not self._is_awaited or self.is_stopping:
            return []
        if self._roster.count(MAY_END_MAIN if self._roster.has_main else HAS_WORK):
            return []
        self._has_noted_endless = True
        alive = [worker for worker in self.workers.values() if worker.state is not State.ENDED]
        kind = "worker of a main group" if self._roster.has_main else "worker"
        return [
            PrintNote(
                f"no {kind} has a run() that could end ({named(alive)}): this program runs until it is"
                " stopped, by Ctrl-C, lp.stop() or running.stop()"
            )
        ]


def _limit_at(worker: WorkerState) -> float | None:
    """Return when a worker is killed if it is not ready, or has not exited; None if there is no limit."""
    if worker.current.killed_for:
        return None
    deadlines = worker.current.deadlines
    by = min(deadlines.get(Deadline.READY, math.inf), deadlines.get(Deadline.EXIT, math.inf))
    return by if by < math.inf else None


def _beat_at(worker: WorkerState) -> float | None:
    """Return when a worker is killed if no heartbeat comes; None if no heartbeat is expected."""
    if worker.current.killed_for:
        return None
    return worker.current.deadlines.get(Deadline.HEARTBEAT)


def _restarted(over: Iterable[WorkerState]) -> dict[str, int]:
    """Return the marks that tell other workers: these had ended for good, and are started again."""
    return {f"{RESTARTED}{worker.name}": worker.attempt for worker in over}
