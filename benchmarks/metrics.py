"""What it costs to look at a program: `python benchmarks/metrics.py`.

    python benchmarks/metrics.py --workers=100 --seconds=20

A tenth of the workers serve, the others call each of two of them ten times a second. First no one looks; then
the launching script asks for `running.metrics()` once a second, and compares with the look before. Printed is
the CPU time of the launcher, of the forkserver, which carries what workers report, and of all workers
together, in percent of one core; with looks less without is what looking costs.

Exits with 1 if that is more than 2 % in the launcher, or a look lacks a worker.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import psutil

import launchpad as lp

CALLS_PER_S = 10
MOST_PERCENT = 2.0
NAMES = ("launcher", "forkserver", "workers")


class Server:
    def step(self, number: int) -> int:
        return number


def call(servers: list[Any]) -> None:
    number = 0
    while not lp.stop_event().wait(1 / CALLS_PER_S):
        number += 1
        for server in servers:
            server.step(number)


def program_of(workers: int) -> lp.Program:
    program = lp.Program("metrics")
    with program.group("server"):
        nodes = [lp.CourierNode(Server) for _ in range(max(2, workers // 10))]
        servers = [program.add_node(node) for node in nodes]
    with program.group("caller"):
        for i in range(workers - len(servers)):
            two = [servers[(i + n) % len(servers)] for n in (0, 1)]
            program.add_node(lp.PyNode(call, two))
    return program


def cpu_s(running: lp.Running) -> tuple[float, ...]:
    """CPU time so far: of the launcher, of the processes between it and the workers, of the workers."""
    pids = {row.pid for row in running.status()}
    between = workers = 0.0
    for process in psutil.Process().children(recursive=True):
        times = process.cpu_times()
        if process.pid in pids:
            workers += times.user + times.system
        else:
            between += times.user + times.system
    return time.process_time(), between, workers


def measure(running: lp.Running, seconds: int, *, looks: bool) -> tuple[list[float], list[float]]:
    """The percentages of one core, and how long each look took."""
    before, began, took = cpu_s(running), time.monotonic(), []
    last = running.metrics() if looks else None
    for number in range(1, seconds + 1):
        time.sleep(max(0.0, began + number - time.monotonic()))
        if last is not None:
            now = time.monotonic()
            look = running.metrics()
            look.since(last)
            took.append(time.monotonic() - now)
            if look.silent:
                sys.exit(f"FAILED: no answer from {', '.join(look.silent)}")
            last = look
    passed_s, after = time.monotonic() - began, cpu_s(running)
    return [100 * (b - a) / passed_s for a, b in zip(before, after, strict=True)], took


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="seconds; to see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.workers, options.seconds = 4, 2
    with lp.launch(program_of(options.workers), "local_mp", terminal="output_to_files") as running:
        while not all(worker.state == "running" for worker in running.status()):
            time.sleep(0.1)
        running.metrics()  # what is imported or begun at the first look is not counted
        time.sleep(1.0)
        without, _ = measure(running, options.seconds, looks=False)
        with_looks, took = measure(running, options.seconds, looks=True)
        edges = len(running.edges())
    cost = [b - a for a, b in zip(without, with_looks, strict=True)]
    took.sort()
    median_ms, longest_ms = 1e3 * took[len(took) // 2], 1e3 * took[-1]
    print(f"{options.workers} workers, {edges} edges, a look every second for {options.seconds} s")
    print(f"{'% of one core':14}{''.join(f'{name:>12}' for name in NAMES)}")
    for what, row in (("without looks", without), ("with looks", with_looks), ("cost", cost)):
        print(f"{what:14}{''.join(f'{percent:12.2f}' for percent in row)}")
    print(f"a look takes {median_ms:.1f} ms (median), {longest_ms:.1f} ms (longest)")
    if options.json:
        from benchmarks.harness import command_line as report

        found = dict(zip((f"{name}_percent" for name in NAMES), cost, strict=True))
        report.write_report(options.json, {"metrics": {**found, "median_ms": median_ms}})
    if cost[0] > MOST_PERCENT:
        sys.exit(f"FAILED: looking costs the launcher more than {MOST_PERCENT:g} % of a core")


if __name__ == "__main__":
    main()
