"""`lp.simulate`: a program's real plan and supervisor on a virtual clock. No worker is started.

program ──plan──▶ LaunchPlan ──▶ Supervisor ── commands ──▶ SimulatedWorkers
                                    ▲                            │
                                    └── events, virtual time ◀───┘
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from launchpad.courier.checks import is_number, is_whole
from launchpad.errors import DefinitionError, LaunchError
from launchpad.launch.backends.backend import Backend, Workers
from launchpad.launch.plan import LaunchPlan, Payload, WorkerPlan
from launchpad.launch.planning import planner
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.launch.supervision.supervisor import Supervisor
from launchpad.launch.supervision.worker_state import Decided, PrintNote
from launchpad.outcome import FAILED, SUCCEEDED
from launchpad.program import Program
from launchpad.resources import Resources
from launchpad.restart_policy import RestartPolicy
from launchpad.runtime.events import Ended, Event
from launchpad.simulation.behaviour import Behaviour, Failures, checked
from launchpad.simulation.clock import VirtualClock
from launchpad.simulation.hosts import SimulatedHosts, check_room, hosts_of
from launchpad.simulation.result import RUNNING, SimulatedGroup, Simulation
from launchpad.simulation.workers import SimulatedEvent, SimulatedWorkers, WorkerRecord

_GRACE_S = 10.0
"""The grace period of the supervisor. Simulated workers stop at once, so they never need it."""


def simulate(
    program: Program,
    *,
    hosts: SimulatedHosts | Sequence[SimulatedHosts] | None = None,
    start_s: float | Mapping[str, float] = 1.0,
    run_s: Mapping[str, float] | None = None,
    failures: Failures | None = None,
    seed: int = 0,
    until_s: float = 30 * 86_400.0,
    restart: RestartPolicy | Mapping[str, RestartPolicy] | None = None,
    resources: Mapping[str, Resources] | None = None,
) -> Simulation:
    """Simulate a program: the real plan, supervisor and restart policies, on a virtual clock.

    No worker is started and none of its code runs, so a month of a hundred workers takes a second. Use it to
    see what a restart policy does before a program needs it. With the same arguments and seed, the history is
    the same. The failures of a host are the same for all policies, so two policies can be compared.

    Example:
        simulation = lp.simulate(
            program,
            hosts=lp.SimulatedHosts(10, cpus=16, mtbf_s=7 * 86_400, repair_s=3600),
            start_s={"learner": 60},
            run_s={"learner": 20 * 86_400},
            failures={"actor": 86_400},
            restart=lp.RestartPolicy(max_restarts=20, within_s=3600, save_every_s=600),
        )
        print(simulation)

    Args:
        program: The program. It isn't changed.
        hosts: The hosts. Workers are placed on them in turn, where their Resources fit. A worker whose host
            fails is started again on another one; if no host has room, it waits. Labels and placement of the
            Resources are ignored. By default there is one host, which has room for everything and never
            fails.
        start_s: How long a worker takes until it is ready, in seconds: one number, or label → seconds (1 s
            for other groups).
        run_s: Label → the seconds that each worker of the group must run until its work is done. Workers of
            other groups only serve: they don't keep the program running. Use infinity for work without end.
            An attempt begins with what its worker has saved: every `save_every_s` of its policy, and when it
            is stopped. Without `save_every_s`, it begins again.
        failures: Label or worker → the mean time between its failures, in seconds of running, with an
            exponential distribution. Or a list: the run times after which attempts 1, 2, … fail.
        seed: The seed of all random numbers.
        until_s: The virtual time at which the simulation ends, if the program hasn't ended by then.
        restart: As for `lp.launch`.
        resources: As for `lp.launch`.

    Raises:
        DefinitionError: there is a mistake in the program, as in `lp.plan`; a name or a time is not valid; or
            the workers don't have room on the hosts, and the text shows the arithmetic.
    """
    kinds = _kinds_of(hosts)
    if not is_whole(seed, at_least=0):
        raise DefinitionError(f"seed={seed!r}: expected a whole number, 0 or more")
    if not is_number(until_s) or not 0 < until_s < math.inf:
        raise DefinitionError(
            f"until_s={until_s!r}: expected seconds, more than 0 and not infinite"
        )
    plan = planner.plan(
        program, SimulatedBackend(kinds), "simulated", restart=restart, resources=resources
    )
    names = [worker.name for worker in plan.workers]
    behaviour = checked(Behaviour(start_s, run_s or {}, failures or {}), plan.groups, names)
    plan.release_buffers()
    plan = replace(plan, workers=tuple(map(_without_code, plan.workers)))
    return SimulatedRun(plan, kinds, behaviour, seed).until(until_s)


class SimulatedBackend(Backend):
    """The backend for which a simulated program is planned.

    Args:
        kinds: The kinds of hosts.
    """

    starts_with_all_payloads = True

    def __init__(self, kinds: Sequence[SimulatedHosts]) -> None:
        self._kinds = kinds

    def endpoint(self, address: str, kind: str) -> str:
        return f"simulated:{address}"

    def assign(self, plan: LaunchPlan) -> LaunchPlan:
        """Check that all workers have room on the hosts.

        Raises:
            DefinitionError: they don't; the text shows the arithmetic.
        """
        check_room(plan.workers, self._kinds)
        return plan

    def create_workers(
        self, plan: LaunchPlan, run: RunDirectory, report: Callable[[Event], None]
    ) -> Workers:
        """Refuse to start workers.

        Raises:
            LaunchError: always.
        """
        raise LaunchError("a simulated program starts no workers; pass it to lp.simulate")


class SimulatedRun:
    """One simulated run: what `Runner` does in a launch, on a virtual clock.

    Attributes:
        supervisor: The supervisor, which is the same as that of a launch.
        messages: The kind of a command or event → how many there were.
    """

    def __init__(
        self, plan: LaunchPlan, kinds: Sequence[SimulatedHosts], behaviour: Behaviour, seed: int
    ) -> None:
        self.supervisor = Supervisor(plan, _GRACE_S)
        self.messages: Counter[str] = Counter()
        self._plan = plan
        self._seed = seed
        self._clock = VirtualClock()
        self._reports: deque[Event] = deque()
        self._history: list[SimulatedEvent] = []
        self._failures: Counter[str] = Counter()
        self._workers = SimulatedWorkers(
            plan,
            hosts_of(kinds),
            behaviour,
            self._clock,
            self._reports.append,
            self._history.append,
            seed,
        )

    def until(self, until_s: float) -> Simulation:
        """Run until the program has ended or the time is up, and return the result."""
        supervisor = self.supervisor
        clock = self._clock
        self._execute(supervisor.start_all(clock.now))
        while not supervisor.is_over:
            if self._reports:
                self._execute(self._decide(self._reports.popleft()))
                continue
            wake_at = supervisor.wake_at()
            tick_at = math.inf if wake_at is None else max(clock.now, wake_at)
            next_at = clock.next_at()
            if min(tick_at, next_at) > until_s:
                clock.now = until_s
                break
            if next_at <= tick_at:
                clock.advance()
            else:
                clock.now = tick_at
                self._execute(supervisor.tick(clock.now))
        self._workers.close()
        return self._result()

    def _decide(self, report: Event) -> list[Decided]:
        self.messages[type(report).__name__] += 1
        commands = self.supervisor.on(report, self._clock.now)
        if isinstance(report, Ended):
            worker = self.supervisor.workers[report.outcome.worker]
            # The supervisor has the last word: a worker that was killed for being late has failed.
            if worker.outcome is not None and worker.outcome.is_failure:
                self._failures[worker.plan.group] += 1
        return commands

    def _execute(self, commands: list[Decided]) -> None:
        for command in commands:
            if isinstance(command, PrintNote):
                note = SimulatedEvent(self._clock.now, "launchpad", "note", why=command.text)
                self._history.append(note)
            else:
                self.messages[type(command).__name__] += 1
                self._workers.execute(command)

    def _result(self) -> Simulation:
        supervisor = self.supervisor
        outcome = RUNNING
        if supervisor.is_over:
            outcome = FAILED if supervisor.failures else SUCCEEDED
        return Simulation(
            program=self._plan.program,
            seed=self._seed,
            outcome=outcome,
            time_s=self._clock.now,
            groups=tuple(self._group(label, of) for label, of in self._plan.groups.items()),
            failures=tuple(supervisor.failures),
            history=tuple(self._history),
            messages=dict(self.messages),
        )

    def _group(self, label: str, workers: Sequence[WorkerPlan]) -> SimulatedGroup:
        records = [self._workers.records[worker.name] for worker in workers]
        starts = sum(record.starts for record in records)
        needed_s = sum(self._needed_s(record) for record in records)
        running_s = sum(record.running_s for record in records)
        return SimulatedGroup(
            label=label,
            workers=len(workers),
            starts=starts,
            restarts=sum(max(record.starts - 1, 0) for record in records),
            failures=self._failures[label],
            availability=running_s / needed_s if needed_s else 1.0,
            lost_s=sum(record.lost_s for record in records),
        )

    def _needed_s(self, record: WorkerRecord) -> float:
        """Return for how long a worker was needed: until its work was done, or the end."""
        return self._clock.now if record.done_at is None else record.done_at


def _kinds_of(hosts: SimulatedHosts | Sequence[SimulatedHosts] | None) -> list[SimulatedHosts]:
    """Return the kinds of hosts as a list.

    Raises:
        DefinitionError: `hosts` is something else, or an empty list.
    """
    if hosts is None:
        return [SimulatedHosts(1)]
    kinds = [hosts] if isinstance(hosts, SimulatedHosts) else hosts
    is_list = isinstance(kinds, Sequence) and len(kinds) > 0
    if not is_list or not all(isinstance(kind, SimulatedHosts) for kind in kinds):
        raise DefinitionError(f"hosts={hosts!r}: expected lp.SimulatedHosts(…), or a list of them")
    return list(kinds)


def _without_code(worker: WorkerPlan) -> WorkerPlan:
    """Return the worker without what would run, and without heartbeats, which no code would send."""
    restart = replace(worker.policy.restart, heartbeat_s=None)
    return replace(worker, payload=Payload(), policy=replace(worker.policy, restart=restart))
