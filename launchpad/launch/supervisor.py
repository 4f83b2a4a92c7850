"""The supervisor: decides, and touches nothing. Reports and the time go in, commands come out.

The life of a worker is in `watched.py`, whether it is started again in `restarts.py`. The program ends
  well   when all workers of the main groups have ended, or, without main groups, all that had something
         to run (servers alone never end it); or when somebody asked for a stop;
  badly  at the first failure that no restart policy covers.
"""

from __future__ import annotations

from collections.abc import Callable

from launchpad.launch.backend import Born, Done, Ended, Ready, Report, StopRequested, Waiting
from launchpad.launch.commands import Ask, Command, Kill, Note, Start, TellGone
from launchpad.launch.orderly_stop import OrderlyStop
from launchpad.launch.plan import LaunchPlan, WorkerPlan
from launchpad.launch.restart_texts import announcement, given_up, scope_name, too_late
from launchpad.launch.restarting import Restarting
from launchpad.launch.restarts import Decision, Verdict, decide, within
from launchpad.launch.rings import deadlock, find_ring
from launchpad.launch.watched import State, Watched
from launchpad.outcome import Outcome
from launchpad.restart_policy import GROUP, WORKER

__all__ = ["Ask", "Command", "Kill", "Note", "Start", "Supervisor", "TellGone"]


class Supervisor:
    """Watches the workers of one launch. Not thread-safe: one thread owns it. Times are monotonic seconds.

    Args:
      plan: Who there is, in order of start.
      grace_s: How long a worker may take to stop; 0 kills at once, a negative number never kills.

    Attributes:
      failures: Those that ended the program, and those that came after them.
      stop_reason: Why it stops; empty while it does not.
    """

    def __init__(self, plan: LaunchPlan, grace_s: float) -> None:
        self.workers = {worker.name: Watched(worker) for worker in plan.workers}
        self.failures: list[Outcome] = []
        self.stop_reason = ""
        self._grace_s = grace_s
        self._groups = list(plan.groups)[::-1]
        self._stop: OrderlyStop | None = None
        self._restarting: list[Restarting] = []
        self._deaths: dict[str, list[tuple[float, Outcome]]] = {}
        self._gone: dict[str, str] = {}

    def begin(self, now: float = 0.0) -> list[Command]:
        """Starts everyone."""
        return [c for worker in self.workers.values() for c in self._start(worker, now)]

    def add(self, plan: WorkerPlan, now: float = 0.0) -> list[Command]:
        """Starts one more worker, if the program is not about to end. The last to start is asked first."""
        if self.is_stopping:
            return []
        self.workers[plan.name] = Watched(plan, runs=plan.runs)
        self._groups.insert(0, plan.group)
        return self._start(self.workers[plan.name], now)

    def on(self, report: Report, now: float) -> list[Command]:
        """What to do about a report that arrived at `now`."""
        handlers: dict[type, Callable[..., list[Command]]] = {
            Born: self._on_born,
            Ready: self._on_ready,
            Done: self._on_done,
            Waiting: self._on_waiting,
            StopRequested: self._on_stop_requested,
            Ended: self._on_ended,
        }
        return handlers[type(report)](report, now) + self.tick(now)

    def stop(self, reason: str, now: float, at_once: bool = False) -> list[Command]:
        """Begins to stop the program; once it has begun only `at_once` changes anything."""
        if self._stop is None:
            self.stop_reason = reason
            for restarting in self._restarting:
                restarting.give_up()
            self._restarting.clear()
            self._stop = OrderlyStop(self.workers.values, self._groups, now, self._grace_s)
        if at_once:
            self._stop.hurry()
        return self.tick(now)

    def tick(self, now: float) -> list[Command]:
        """What the time alone makes due."""
        if self._stop is not None:
            return self._stop.tick(now)
        due = self._kill_late_starts(now)
        for restarting in tuple(self._restarting):
            due += self._go_on(restarting, now)
        return due

    def wake_at(self) -> float | None:
        """When `tick` has something to do, if no report comes before."""
        if self._stop is not None:
            return self._stop.wake_at()
        times = [restarting.wake_at() for restarting in self._restarting]
        times += [worker.ready_by for worker in self.workers.values() if not worker.killed]
        return min((time for time in times if time is not None), default=None)

    @property
    def is_stopping(self) -> bool:
        """Whether the end has begun."""
        return self._stop is not None

    @property
    def is_over(self) -> bool:
        """Whether all workers have ended and none is to be started again."""
        return all(worker.state is State.ENDED for worker in self.workers.values())

    # Reports.

    def _on_born(self, report: Born, now: float) -> list[Command]:
        worker = self.workers[report.worker]
        if report.attempt == worker.attempt and worker.is_alive:
            worker.pid = report.pid
        return []

    def _on_ready(self, report: Ready, now: float) -> list[Command]:
        worker = self.workers[report.worker]
        if report.attempt != worker.attempt or not worker.is_alive:
            return []
        worker.runs, worker.ready_by = report.runs, None
        worker.move("ready")
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
        ring = find_ring(self.workers, report.worker, now)
        if not ring or worker.state is not State.STARTING:
            return []
        return self._fail(deadlock(ring, worker), now)

    def _on_stop_requested(self, report: StopRequested, now: float) -> list[Command]:
        return self.stop(f"{report.worker} called lp.stop()", now)

    def _on_ended(self, report: Ended, now: float) -> list[Command]:
        worker = self.workers[report.outcome.worker]
        if report.outcome.attempt != worker.attempt or not worker.is_alive:
            return []  # an attempt that was replaced has no say
        ended = too_late(worker, report.outcome) if worker.is_late else report.outcome
        worker.end(ended)
        if any(worker in restarting for restarting in self._restarting):
            worker.move("restart")
            return []
        decision = self._decide(worker, ended, now)
        if decision.verdict is Verdict.LEAVE:
            return self._stop_if_done(now) or self._tell_ended(worker)
        if decision.verdict is Verdict.RESTART:
            return self._restart(worker, ended, decision, now)
        return self._fail(self._explained(worker, ended, decision, now), now)

    # Restarts.

    def _decide(self, worker: Watched, ended: Outcome, now: float) -> Decision:
        restarts = [at for at, _ in self._deaths.get(scope_name(worker), ())]
        return decide(worker.plan.restart, ended, restarts, now, is_stopping=self.is_stopping)

    def _restart(
        self, worker: Watched, ended: Outcome, decision: Decision, now: float
    ) -> list[Command]:
        """Begins to restart the worker and whoever is restarted with it."""
        self._remember(worker, ended, now)
        members, due_at = self._scope_of(worker), now + decision.delay_s
        for other in [r for r in self._restarting if any(m in r for m in members)]:
            self._restarting.remove(other)
            members = [w for w in self.workers.values() if w in members or w in other]
            due_at = max(due_at, other.due_at)
        for member in members:
            member.move("restart")
        stop = OrderlyStop(lambda: members, self._groups, now, self._grace_s, restarts=True)
        self._restarting.append(Restarting(members, due_at, stop))
        return [Note(announcement(worker, ended, decision))]

    def _remember(self, worker: Watched, ended: Outcome, now: float) -> None:
        """Takes note of a death that a restart follows; forgets those that no policy counts any more."""
        longest_s = max(w.plan.restart.within_s for w in self.workers.values())
        deaths = self._deaths.get(scope_name(worker), [])
        recent = [(at, death) for at, death in deaths if now - at < longest_s]
        self._deaths[scope_name(worker)] = [*recent, (now, ended)]

    def _scope_of(self, worker: Watched) -> list[Watched]:
        """Who is started again with it, itself included."""
        scope = worker.plan.restart.scope
        if scope == WORKER:
            return [worker]
        group = worker.plan.group
        return [w for w in self.workers.values() if scope != GROUP or w.plan.group == group]

    def _go_on(self, restarting: Restarting, now: float) -> list[Command]:
        if not restarting.is_due(now):
            return restarting.stop.tick(now)
        self._restarting.remove(restarting)
        return [c for worker in restarting.members for c in self._start(worker, now)]

    def _start(self, worker: Watched, now: float) -> list[Command]:
        """Starts it; and it learns, as others did before it was born, who is gone."""
        worker.begin(now)
        commands: list[Command] = [Start(worker.name, worker.attempt)]
        if self._gone.pop(worker.name, ""):
            commands.append(TellGone(worker.name, ""))
        if worker.attempt > 1:
            commands += [TellGone(name, why) for name, why in self._gone.items()]
        return commands

    def _kill_late_starts(self, now: float) -> list[Command]:
        commands: list[Command] = []
        for worker in self.workers.values():
            if worker.ready_by is not None and now >= worker.ready_by and not worker.killed:
                worker.killed = worker.is_late = True
                limit = worker.plan.restart.start_timeout_s
                commands.append(Kill(worker.name, f"was not ready within {limit:g} s"))
        return commands

    def _explained(
        self, worker: Watched, ended: Outcome, decision: Decision, now: float
    ) -> Outcome:
        """A failure that no restart covers, with the reason why not."""
        deaths = self._deaths.get(scope_name(worker), [])
        counted = within(worker.plan.restart, [at for at, _ in deaths], now)
        earlier = [death for at, death in deaths if at in counted]
        return given_up(worker, ended, decision.reason, earlier)

    # The end.

    def _fail(self, failed: Outcome, now: float) -> list[Command]:
        self.failures.append(failed)
        told = [Note(failed.headline()), *self._tell_gone(failed.worker, failed.headline())]
        return told + self.stop(f"{failed.worker} failed", now)

    def _tell_ended(self, worker: Watched) -> list[Command]:
        """A call to a server that has ended would wait for ever, if nobody said so."""
        if self.is_stopping or not worker.plan.endpoints or worker.outcome is None:
            return []
        headline = worker.outcome.headline().rstrip(": ")
        return self._tell_gone(worker.name, f"{headline}: it has ended and serves no more")

    def _tell_gone(self, worker: str, why: str) -> list[Command]:
        self._gone[worker] = why
        return [TellGone(worker, why)]

    def _stop_if_done(self, now: float) -> list[Command]:
        if self.is_stopping or not self._is_done():
            return []
        return self.stop("all work is done", now)

    def _is_done(self) -> bool:
        """Whether nothing is left to wait for. Who is not ready yet may still turn out to run something."""
        workers = list(self.workers.values())
        mains = [worker for worker in workers if worker.plan.main]
        if mains:
            return all(worker.has_finished for worker in mains)
        if any(w.runs is None and w.state is not State.ENDED for w in workers):
            return False
        runners = [w for w in workers if w.runs or (w.state is State.ENDED and w.runs is None)]
        return bool(runners) and all(worker.has_finished for worker in runners)
