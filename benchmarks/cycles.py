"""Launches and stops a small program again and again in one process, and looks at what piles up.

    python benchmarks/cycles.py --cycles 1000

A cycle launches a program of four nodes, calls each of them, and stops it. First as threads, then as
processes; each in an interpreter of its own, after 100 cycles that are not counted, which import and fill
caches and heaps. Printed are the time of a cycle and what this process has more of after the last counted
cycle than before the first; memory is its own alone.
"""

from __future__ import annotations

import ctypes
import gc
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import launchpad as lp
from benchmarks.harness import bars, holdings
from benchmarks.harness.command_line import Parser
from benchmarks.harness.figures import spread
from benchmarks.harness.processes import apart, environment
from benchmarks.harness.programs import launch, replicas

TYPES = ("local_mt", "local_mp")
BARS = bars.parse(
    "\n".join(
        f"""
{launch_type}: a cycle, median          | cycles/{launch_type}/seconds      | ≤ 0.3 s
{launch_type}: children not waited for  | cycles/{launch_type}/zombies      | ≤ 0
{launch_type}: more threads             | cycles/{launch_type}/threads      | ≤ 0
{launch_type}: more descriptors         | cycles/{launch_type}/descriptors  | ≤ 1
{launch_type}: more memory              | cycles/{launch_type}/memory_mib   | ≤ 2 MiB
""".strip()
        for launch_type in TYPES
    )
)
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


def inventory() -> dict[str, float]:
    """Return what this process has."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    rollup = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return {
        "zombies": sum(_is_zombie(pid) for pid in holdings.children("self")),
        "threads": threading.active_count(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "memory_mib": sum(int(line.split()[1]) for line in rollup if "Private_" in line) / 1024,
    }


def measure(launch_type: str, cycles: int) -> dict[str, Any]:
    """Run all cycles of one launch type, here."""
    for _ in range(min(UNCOUNTED, cycles)):
        cycle(launch_type)
    before = inventory()
    seconds = [cycle(launch_type) for _ in range(cycles)]
    after = inventory()
    grown = {what: after[what] - before[what] for what in before}
    return {**grown, "zombies": after["zombies"], "seconds": spread(seconds), "cycles": seconds}


def main() -> None:
    parser = Parser(__doc__, {"cycles": 3}, cycles=1000, launch_types=list(TYPES))
    options = parser.parse_args()
    found = {}
    for launch_type in options.launch_types:
        with tempfile.TemporaryDirectory() as directory:
            row = apart(measure, launch_type, options.cycles, env=environment(TMPDIR=directory))
        found[launch_type] = row
        print(
            f"{launch_type}: {options.cycles} cycles, the longest took {row['seconds']['max']:.2f} s"
        )
    wanted = [bar for bar in BARS if bar.figure.split("/")[1] in found]
    bars.finish(options, {"cycles": found}, wanted)


def _is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


if __name__ == "__main__":
    main()
