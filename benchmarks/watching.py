"""The cost of watching a program: `python benchmarks/watching.py [--only metrics,calls,mapreduce]`.

metrics      A tenth of the workers serve. Each of the others calls two of them ten times a second. First
             nobody looks at the program. Then the script asks for `running.metrics()` once a second, and
             compares with the look before. It prints the CPU time of the launcher, of the forkserver, which
             carries the reports of workers, and of all workers together, in percent of one core. The
             difference is the cost of looking.
calls        Callers that do nothing but call an echo, one call after the other. The script compares the time
             of a call while `running.trace()` records with the time in the seconds before and after.
mapreduce    The example, from launch to end. The script compares recorded runs with others.

A recording's cost is the median of the rounds, first of wall time, with the range, and then of the
processors' time, which is the better measure on a busy machine. The script exits with 1 if both are above
5 %, if looks cost the launcher more than 2 % of a core, or if a worker does not answer a look.
"""

from __future__ import annotations

import os
import statistics
import sysconfig
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil

import launchpad as lp
from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.figures import Spread, Table, percentile, spread
from benchmarks.harness.programs import launch
from examples.mapreduce.program import make_program
from examples.mapreduce.text import find_texts

MOST_SLOWER = 0.05
MOST_PERCENT = 2.0
CALLS_PER_S = 10
NAMES = ("launcher", "forkserver", "workers")


class Echo:
    """A server that counts its calls."""

    def __init__(self) -> None:
        self._calls = 0

    def echo(self, value: int) -> int:
        self._calls += 1
        return value

    def calls(self) -> int:
        return self._calls


def call(servers: list[Any], pause_s: float) -> None:
    """Call all servers until the program stops. Without a pause, check that after every 100 calls only."""
    while not lp.stop_event().wait(pause_s):
        for number in range(1 if pause_s else 100):
            for server in servers:
                server.echo(number)


def program_of(n_servers: int, n_callers: int, pause_s: float = 0.0) -> lp.Program:
    """Return a program in which each caller calls two servers, or the only one."""
    program = lp.Program("watched")
    with program.group("server"):
        nodes = [lp.CourierNode(Echo) for _ in range(n_servers)]
        servers = [program.add_node(node) for node in nodes]
    with program.group("caller"):
        for i in range(n_callers):
            called = [servers[(i + n) % n_servers] for n in range(min(2, n_servers))]
            program.add_node(lp.PyNode(call, called, pause_s))
    return program


# Looks.


def cpu_s(running: lp.Running) -> tuple[float, ...]:
    """Return the CPU seconds of the launcher, of the processes between it and the workers, and of workers."""
    pids = {row.pid for row in running.status()}
    children = psutil.Process().children(recursive=True)
    workers = [process for process in children if process.pid in pids]
    between = [process for process in children if process.pid not in pids]
    return time.process_time(), cpu_of(between), cpu_of(workers)


def cpu_of(processes: Sequence[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def look(running: lp.Running, seconds: int, *, looks: bool) -> tuple[list[float], list[float]]:
    """Return the CPU times of the next seconds in percent of one core, and the seconds of each look."""
    before = cpu_s(running)
    began = time.monotonic()
    took = []
    last = running.metrics() if looks else None
    for number in range(1, seconds + 1):
        time.sleep(max(0.0, began + number - time.monotonic()))
        if last is not None:
            now = time.monotonic()
            metrics = running.metrics()
            metrics.since(last)
            took.append(time.monotonic() - now)
            if metrics.silent:
                raise SystemExit(f"FAILED: no answer from {', '.join(metrics.silent)}")
            last = metrics
    passed_s = time.monotonic() - began
    after = cpu_s(running)
    return [100 * (b - a) / passed_s for a, b in zip(before, after, strict=True)], took


def measure_looks(workers: int, seconds: int) -> tuple[dict[str, float], list[str]]:
    """Print the cost of looking; return the figures and the faults."""
    n_servers = max(2, workers // 10)
    with launch(program_of(n_servers, workers - n_servers, 1 / CALLS_PER_S)) as running:
        while not all(worker.state == "running" for worker in running.status()):
            time.sleep(0.1)
        running.metrics()  # the first look imports modules and starts threads: it is not counted
        time.sleep(1.0)
        plain_row, _ = look(running, seconds, looks=False)
        looks_row, took = look(running, seconds, looks=True)
        edges = len(running.edges())
    cost = [b - a for a, b in zip(plain_row, looks_row, strict=True)]
    median_ms = 1e3 * percentile(took, 50)
    print(f"{workers} workers, {edges} edges, a look every second for {seconds} s")
    table = Table("% of one core", dict.fromkeys(NAMES, ".2f"))
    for title, row in (("without looks", plain_row), ("with looks", looks_row), ("cost", cost)):
        table.row(title, *row)
    print(f"a look takes {median_ms:.1f} ms (median), {1e3 * max(took):.1f} ms (longest)\n")
    figures = dict(zip((f"{name}_percent" for name in NAMES), cost, strict=True))
    is_dear = cost[0] > MOST_PERCENT
    faults = [f"looking costs the launcher more than {MOST_PERCENT:g} % of a core"] * is_dear
    return figures | {"median_ms": median_ms}, faults


# Recordings.


class Times(NamedTuple):
    """The seconds that something took."""

    wall: float
    cpu: float

    def slower_than(self, base: Times) -> Times:
        """Return the share by which these times are longer than the base."""
        return Times(self.wall / base.wall - 1, self.cpu / base.cpu - 1)


def record_calls(callers: int, rounds: int, part_s: float) -> tuple[list[Times], str]:
    """Return the slowdown of recorded calls in each round, and a text with the rates."""
    slower = []
    rates = []
    traces = []
    with launch(program_of(1, callers)) as running:
        client = running.client("server")
        while client.calls() < 10_000:
            time.sleep(0.1)
        processes = [psutil.Process(row.pid) for row in running.status()]

        def measure(wait: Callable[[float], object]) -> Times:
            """Return the seconds of each call during a wait."""
            cpu = cpu_of(processes)
            began = time.perf_counter()
            before = client.calls()
            wait(part_s)
            n = client.calls() - before
            return Times((time.perf_counter() - began) / n, (cpu_of(processes) - cpu) / n)

        for _ in range(rounds):
            plain = measure(time.sleep)
            recorded = measure(lambda s: traces.append(running.trace(s)))
            after = measure(time.sleep)
            mean = Times((plain.wall + after.wall) / 2, (plain.cpu + after.cpu) / 2)
            slower.append(recorded.slower_than(mean))
            rates.append(1 / plain.wall)
    share = sum(trace.recorded_calls for trace in traces) / sum(trace.calls for trace in traces)
    return slower, f"{statistics.median(rates):,.0f} calls/s, {share:.1%} of them recorded"


def record_mapreduce(rounds: int) -> tuple[list[Times], str]:
    """Return the slowdown of a recorded run in each round, and a text with the times."""
    texts = find_texts(Path(sysconfig.get_path("stdlib")), "*.py")
    slower = []
    plain_s = []
    n_recorded = 0
    with ThreadPoolExecutor(1) as pool:
        for number in range(rounds):
            took = {}
            for is_traced in (False, True) if number % 2 else (True, False):
                began = time.perf_counter()
                cpu = sum(os.times()[:4])
                running = launch(make_program(texts, 4, 2))
                tracing = pool.submit(running.trace, 60.0) if is_traced else None
                running.wait()
                took[is_traced] = Times(time.perf_counter() - began, sum(os.times()[:4]) - cpu)
                if tracing is not None:
                    n_recorded += tracing.result().recorded_calls
            slower.append(took[True].slower_than(took[False]))
            plain_s.append(took[False].wall)
    return slower, f"{statistics.median(plain_s):.2f} s, {n_recorded / rounds:,.0f} calls recorded"


def main() -> None:
    parts = ["metrics", "calls", "mapreduce"]
    quick = {"workers": 4, "seconds": 2, "rounds": 1, "part_s": 0.5, "callers": [1], "runs": 1}
    parser = Parser(
        __doc__,
        quick,
        only=parts,
        workers=100,
        seconds=20,
        rounds=15,
        part_s=1.0,  # of each part of a round of calls
        callers=[1, 4],
        runs=10,  # of mapreduce
    )
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    faults: list[str] = []
    recordings: dict[str, Callable[[], tuple[list[Times], str]]] = {}
    if "metrics" in options.only:
        figures["metrics"], faults = measure_looks(options.workers, options.seconds)
    if "calls" in options.only:
        for n in options.callers:
            recordings[f"calls, {n} callers"] = partial(
                record_calls, n, options.rounds, options.part_s
            )
    if "mapreduce" in options.only:
        recordings["mapreduce"] = partial(record_mapreduce, options.runs)
    heads = {"wall time (range)": "+.1%", "processors": "+.1%", "of": ""}
    table = Table("longer when recorded", heads, width=24)
    for name, record in recordings.items():
        slower, about = record()
        wall: Spread = spread(times.wall for times in slower)
        cpu: Spread = spread(times.cpu for times in slower)
        table.row(name, wall, cpu, f"  {about}")
        figures[name] = {"wall": wall, "cpu": cpu}
        if min(wall["median"], cpu["median"]) > MOST_SLOWER:
            faults.append(f"{name}: a recording costs too much")
    finish(options, figures, faults)


if __name__ == "__main__":
    main()
