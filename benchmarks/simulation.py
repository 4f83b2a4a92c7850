"""The cost of supervising very many workers, and the agreement of simulations with real runs.

    python benchmarks/simulation.py
    python benchmarks/simulation.py --workers 5000 --runs 0

A storm: a program of N workers is simulated. Each fails every five minutes and is started again. Half of the
workers are in one group, and the others in groups of ten. When those of the large group have done their work,
all are stopped. The script prints the CPU time that the real supervisor takes for all its decisions, and the
memory that is freed when it is dropped.

For the agreement, a small program whose workers fail at times drawn from a seed runs really, once for each
seed, and is simulated: how each attempt of each worker ended, and how the program did. If two failures are
closer than 40 ms, a real run may have them in the other order. So these runs are counted apart.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import launchpad as lp
from benchmarks.harness import bars, drawn_failures
from benchmarks.harness.command_line import Parser
from launchpad.launch.plan import LaunchPlan, WorkerPlan, WorkerPolicy
from launchpad.launch.supervision.supervisor import Supervisor
from launchpad.launch.supervision.worker_state import Decided
from launchpad.runtime.events import Ended, Event
from launchpad.simulation.behaviour import Behaviour
from launchpad.simulation.hosts import SimulatedHosts
from launchpad.simulation.simulate import SimulatedRun

BARS = bars.parse("""
memory of the supervisor for each of 5,000 workers  | storm/5000/kb_per_worker  | ≤ 20 kB
time of an event, in the largest storm : smallest   | storm/growth              | ≤ 3
runs without close failures that go as simulated    | agreement/share           | ≥ 0.98
""")

CLOSE_S = 0.04
"""Failures that are closer to each other may come in another order in a real run."""

_TOGETHER = 3
"""The number of real runs at the same time."""

EVERY_S = 300.0
"""How long a worker of a storm runs on average until it fails."""

_POLICY = lp.RestartPolicy(
    max_restarts=10**6, within_s=3600.0, backoff=0.1, start_timeout_s=60.0, save_every_s=10.0
)


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
    """The CPU time of a supervisor's decisions, and the number of events that it has received."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.cpu_s = 0.0
        self.n_events = 0
        self._on = supervisor.on
        replaced: dict[str, Callable[..., Any]] = {
            "on": self._on_real,
            "tick": supervisor.tick,
            "wake_at": supervisor.wake_at,
        }
        for name, method in replaced.items():
            setattr(supervisor, name, self._timed(method))

    def _on_real(self, report: Event, now: float) -> list[Decided]:
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


def storm_of(n_workers: int, n_failures: int) -> SimulatedRun:
    """Return a run of which each worker fails about this often."""
    plan = plan_of(n_workers)
    failures = dict.fromkeys(plan.groups, EVERY_S)
    behaviour = Behaviour(5.0, {"actor": EVERY_S * n_failures}, failures)
    return SimulatedRun(plan, [SimulatedHosts(1)], behaviour, seed=1)


def time_of(n_workers: int, n_failures: int) -> dict[str, float]:
    """Run a storm, and return the time that the supervisor took."""
    run = storm_of(n_workers, n_failures)
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


def memory_of(n_workers: int, n_failures: int) -> float:
    """Run a storm, and return the bytes per worker that are freed when the supervisor is dropped."""
    tracemalloc.start()
    run = storm_of(n_workers, n_failures)
    _give_output(run.supervisor)
    run.until(EVERY_S * n_failures)
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    del run.supervisor
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (before - after) / n_workers


def _give_output(supervisor: Supervisor) -> None:
    """Give each failure what a real one has: a traceback, the last lines of output, the path of a log."""
    on = supervisor.on
    setattr(supervisor, "on", lambda report, now: on(_with_output(report), now))  # noqa: B010


def _with_output(report: Event) -> Event:
    if not isinstance(report, Ended):
        return report
    end = report.outcome
    name = f"{end.worker} {end.attempt}"
    traceback = "".join(f"  File {name} line {i}\n    called\n" for i in range(40))
    lines = tuple(f"{i:4} {name} ".ljust(80, ".") for i in range(200))
    path = f"/tmp/launchpad/runs/20260101-000000-abcdef/logs/{name}.log"
    return Ended(replace(end, traceback=traceback, last_lines=lines, log_path=path))


def measure_storms(sizes: Sequence[int], n_failures: int) -> dict[str, Any]:
    """Run a storm of each size, print its figures, and return them."""
    figures: dict[str, Any] = {}
    for n_workers in sizes:
        row = time_of(n_workers, n_failures)
        row["kb_per_worker"] = memory_of(n_workers, n_failures) / 1000
        print(
            f"{n_workers:6,} workers: {row['failures']:7,} failures, {row['events']:8,} events;"
            f" {row['cpu_s']:7.2f} s of CPU, {row['us_per_event']:5.0f} µs an event,"
            f" {row['events_per_s']:7,.0f} events/s; {row['kb_per_worker']:5.1f} kB a worker",
            flush=True,
        )
        figures[str(n_workers)] = row
    first = figures[str(sizes[0])]
    last = figures[str(sizes[-1])]
    return {**figures, "growth": last["us_per_event"] / first["us_per_event"]}


def measure_agreement(runs: int) -> dict[str, Any]:
    """Compare this number of real runs with their simulations, print the result, and return it."""
    comparisons = [drawn_failures.draw(seed) for seed in range(runs)]
    real: list[drawn_failures.Ends] = []
    for i in range(0, runs, _TOGETHER):
        real += drawn_failures.run_really(comparisons[i : i + _TOGETHER], "test_mt")
    agrees = [c.simulated == ends for c, ends in zip(comparisons, real, strict=True)]
    apart = [
        is_equal for c, is_equal in zip(comparisons, agrees, strict=True) if c.margin_s >= CLOSE_S
    ]
    attempts = sum(len(kinds) for ends in real for kinds in ends.workers.values())
    print(
        f"{sum(agrees)} of {runs} real runs went as simulated ({attempts:,} attempts); of the"
        f" {len(apart)} without failures closer than {CLOSE_S * 1000:.0f} ms: {sum(apart)}"
    )
    return {"runs": runs, "share": sum(apart) / len(apart), "share_of_all": sum(agrees) / runs}


def main() -> None:
    quick = {"workers": [20, 40], "failures": 1, "runs": 2}
    parser = Parser(__doc__, quick, workers=[100, 1000, 5000], failures=3, runs=200)
    options = parser.parse_args()
    report: dict[str, Any] = {}
    if options.runs:
        report["agreement"] = measure_agreement(options.runs)
    if options.workers:
        report["storm"] = measure_storms(options.workers, options.failures)
    own_bars = [bar for bar in BARS if bar.figure_in(report) is not None]
    bars.finish(options, report, own_bars)


if __name__ == "__main__":
    main()
