"""The cost of looking at a program: `python benchmarks/metrics.py`.

    python benchmarks/metrics.py --workers=100 --seconds=20

A tenth of the workers serve, the others call each of two of them ten times a second. First no one looks; then
the launching script asks for `running.metrics()` once a second, and compares with the look before. Printed is
the CPU time of the launcher, of the forkserver, which carries what workers report, and of all workers
together, in percent of one core; with looks less without is what looking costs.

Exits with 1 if that is more than 2 % in the launcher, or a look lacks a worker.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import psutil

import launchpad as lp
from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.figures import Table, percentile

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
    """Return the CPU time so far of the launcher, of what is between it and the workers, and of these."""
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
    """Return the percentages of one core, and how long each look took."""
    before = cpu_s(running)
    began = time.monotonic()
    took = []
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
    passed_s = time.monotonic() - began
    after = cpu_s(running)
    return [100 * (b - a) / passed_s for a, b in zip(before, after, strict=True)], took


def main() -> None:
    options = Parser(__doc__, {"workers": 4, "seconds": 2}, workers=100, seconds=20).parse_args()
    with lp.launch(program_of(options.workers), "local_mp", terminal="output_to_files") as running:
        while not all(worker.state == "running" for worker in running.status()):
            time.sleep(0.1)
        running.metrics()  # what is imported or begun at the first look is not counted
        time.sleep(1.0)
        without, _ = measure(running, options.seconds, looks=False)
        with_looks, took = measure(running, options.seconds, looks=True)
        edges = len(running.edges())
    cost = [b - a for a, b in zip(without, with_looks, strict=True)]
    median_ms = 1e3 * percentile(took, 50)
    print(f"{options.workers} workers, {edges} edges, a look every second for {options.seconds} s")
    table = Table("% of one core", dict.fromkeys(NAMES, ".2f"))
    for what, row in (("without looks", without), ("with looks", with_looks), ("cost", cost)):
        table.row(what, *row)
    print(f"a look takes {median_ms:.1f} ms (median), {1e3 * max(took):.1f} ms (longest)")
    found = dict(zip((f"{name}_percent" for name in NAMES), cost, strict=True))
    is_dear = cost[0] > MOST_PERCENT
    faults = [f"looking costs the launcher more than {MOST_PERCENT:g} % of a core"] * is_dear
    finish(options, {"metrics": {**found, "median_ms": median_ms}}, faults)


if __name__ == "__main__":
    main()
