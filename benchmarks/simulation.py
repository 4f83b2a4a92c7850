"""The cost of supervising very many workers, and the agreement of simulations with real runs.

    python benchmarks/simulation.py
    python benchmarks/simulation.py --workers 5000 --runs 0

A storm: a program of N workers is simulated, half of them in one group and the others in groups of ten. Each
worker fails every few minutes, and restarts with a limit on the time of its start, a backoff and an endpoint
that others may call. Then all workers are stopped. The script prints the CPU time per event of the supervisor
alone, and the memory that the supervisor holds per worker at the end.

For the agreement, N real runs of a small program whose workers fail at times drawn from a seed are compared
with their simulations: how each attempt of each worker ended, and the program. If two failures come almost at
the same moment, a real run may have them in the other order; those runs are counted apart.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import launchpad as lp
from benchmarks.harness import bars, drawn_failures
from benchmarks.harness.command_line import Parser
from launchpad.launch.plan import LaunchPlan, WorkerPlan, WorkerPolicy
from launchpad.launch.supervision.supervisor import Supervisor
from launchpad.launch.supervision.worker_state import Decided
from launchpad.runtime.events import Event
from launchpad.simulation.behaviour import Behaviour
from launchpad.simulation.hosts import SimulatedHosts
from launchpad.simulation.simulate import SimulatedRun

MOST = 5000
BARS = bars.parse(f"""
memory of the supervisor, a worker of {MOST:,}    | storm/{MOST}/kib_per_worker  | ≤ 20 kB
time per event, {MOST:,} workers : 100 workers  | storm/growth                 | ≤ 3
runs that go as simulated                      | agreement/share              | ≥ 1
""")

CLOSE_S = 0.04
"""Failures that are closer to each other may come in another order in a real run."""

_AT_ONCE = 10
_POLICY = lp.RestartPolicy(max_restarts=10**6, within_s=3600.0, backoff=0.1, start_timeout_s=60.0, save_every_s=10.0)


def plan_of(n_workers: int) -> LaunchPlan:
    """Return the plan of a program with this number of workers."""
    workers = []
    for i in range(n_workers):
        group, index = ("actor", i // 2) if i % 2 else (f"team{i // 20}", i // 2 % 10)
        name = f"{group}-{index}"
        endpoints = {f"{name}/courier": f"unix:{name}"}
        policy = WorkerPolicy(restart=_POLICY)
        workers.append(
            WorkerPlan(name, group, index, 1, "Node", 0, endpoints=endpoints, policy=policy)
        )
    return LaunchPlan("storm", "simulated", tuple(workers))


class Timed:
    """The CPU time of the decisions of a supervisor, and the number of events.

    Each outcome gets the output and the traceback that that of a real failure has.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self.cpu_s = 0.0
        self.n_events = 0
        self._on = supervisor.on
        for name in ("start_all", "tick", "wake_at"):
            setattr(supervisor, name, self._timed(getattr(supervisor, name)))
        setattr(supervisor, "on", self._timed(self._on_full))

    def _on_full(self, report: Event, now: float) -> list[Decided]:
        self.n_events += 1
        return self._on(report, now)

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            began = time.process_time()
            try:
                return method(*arguments)
            finally:
                self.cpu_s += time.process_time() - began

        return timed


def storm(n_workers: int, n_failures: int) -> dict[str, float]:
    """Simulate a storm of about this number of failures of each worker; return its figures."""
    plan = plan_of(n_workers)
    every_s = 300.0
    failures = dict.fromkeys(plan.groups, every_s)
    behaviour = Behaviour(5.0, {"actor": every_s * n_failures}, failures)
    run = SimulatedRun(plan, [SimulatedHosts(1)], behaviour, seed=1)
    timed = Timed(run.supervisor)
    simulation = run.until(1e9)
    assert simulation.outcome == "succeeded", simulation
    return {
        "workers": n_workers,
        "failures": sum(group.failures for group in simulation.groups),
        "events": timed.n_events,
        "cpu_s": timed.cpu_s,
        "us_per_event": timed.cpu_s / timed.n_events * 1e6,
        "events_per_s": timed.n_events / timed.cpu_s,
    }
