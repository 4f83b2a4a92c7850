"""Launches and stops a small program again and again in one process, and looks at what piles up.

    python benchmarks/cycles.py --cycles 1000

A cycle launches a program of four nodes, calls each of them, and stops it. First as threads, then as
processes; each in an interpreter of its own, after 100 cycles that are not counted, which import and fill
caches and heaps. Printed are the time of a cycle and, from the first counted cycle to the last,

    zombies         children that have ended and were not waited for      0
    threads         more than before                                      0
    descriptors     more than before                                      ≤ 1
    memory          more than before (what is this process's alone)      ≤ 2 MiB
"""

from __future__ import annotations

import ctypes
import gc
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import launchpad as lp
from benchmarks.harness import holdings
from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.figures import Table
from benchmarks.harness.processes import apart, environment
from benchmarks.harness.programs import launch, replicas

CYCLE_S = 0.3
MEMORY_BYTES = 2 << 20
DESCRIPTORS = 1
UNCOUNTED = 100


class Echo:
    """Serves in every node."""

    def echo(self, value: int) -> int:
        return value


def cycle(launch_type: str) -> float:
    """Return the seconds from launch() to the end of stop()."""
    program = replicas("echo", 4, lambda: lp.CourierNode(Echo))
    began = time.perf_counter()
    with launch(program, launch_type) as running:
        assert [running.client("echo", i).echo(i) for i in range(4)] == list(range(4))
    return time.perf_counter() - began


def inventory() -> dict[str, int]:
    """Return what this process has."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    rollup = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return {
        "zombies": sum(_is_zombie(pid) for pid in holdings.children("self")),
        "threads": threading.active_count(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "memory_bytes": sum(int(line.split()[1]) for line in rollup if "Private_" in line) * 1024,
    }


def measure(launch_type: str, cycles: int) -> dict[str, Any]:
    """Run all cycles of one launch type, here."""
    for _ in range(min(UNCOUNTED, cycles)):
        cycle(launch_type)
    before = inventory()
    seconds = [cycle(launch_type) for _ in range(cycles)]
    after = inventory()
    grown = {what: after[what] - before[what] for what in before}
    return {"cycles": cycles, "seconds": seconds, "grown": grown, "zombies": after["zombies"]}


def faults(found: dict[str, Any]) -> list[str]:
    """Return which promises do not hold."""
    grown = found["grown"]
    broken = {
        f"{found['zombies']} zombies": found["zombies"] > 0,
        f"{grown['threads']} more threads": grown["threads"] > 0,
        f"{grown['descriptors']} more descriptors": grown["descriptors"] > DESCRIPTORS,
        "too much memory": grown["memory_bytes"] > MEMORY_BYTES,
        "a cycle takes too long": statistics.median(found["seconds"]) > CYCLE_S,
    }
    return [what for what, is_so in broken.items() if is_so]


def main() -> None:
    """Print the table; exit with 1 if a figure is not as promised."""
    options = Parser(
        __doc__, {"cycles": 3}, cycles=1000, launch_types="local_mt,local_mp"
    ).parse_args()
    columns = {"median ms": ".0f", "worst ms": ".0f", "zombies": "", "threads": "+"}
    table = Table("", {**columns, "descriptors": "+", "memory MiB": "+.2f"}, width=10)
    found = {}
    broken = []
    for launch_type in options.launch_types.split(","):
        with tempfile.TemporaryDirectory() as directory:
            row = apart(measure, launch_type, options.cycles, env=environment(TMPDIR=directory))
        found[launch_type] = row
        ms = [seconds * 1000 for seconds in row["seconds"]]
        grown = row["grown"]
        counts = (row["zombies"], grown["threads"], grown["descriptors"])
        table.row(
            launch_type, statistics.median(ms), max(ms), *counts, grown["memory_bytes"] / 2**20
        )
        broken += [f"{launch_type}: {fault}" for fault in faults(row)]
    finish(options, {"cycles": found}, broken)


def _is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


if __name__ == "__main__":
    main()
