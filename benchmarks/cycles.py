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

import argparse
import ctypes
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

CYCLE_S, MEMORY_BYTES, DESCRIPTORS = 0.3, 2 << 20, 1
UNCOUNTED = 100


class Echo:
    """What every node serves."""

    def echo(self, value: int) -> int:
        return value


def cycle(launch_type: str) -> float:
    """Seconds from launch() to the end of stop()."""
    import launchpad as lp

    program = lp.Program("cycle")
    with program.group("echo"):
        for _ in range(4):
            program.add_node(lp.CourierNode(Echo))
    began = time.perf_counter()
    with lp.launch(program, launch_type, terminal="output_to_files") as running:
        assert [running.client("echo", i).echo(i) for i in range(4)] == list(range(4))
    return time.perf_counter() - began


def inventory() -> dict[str, int]:
    """What this process has."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    children = _children()
    rollup = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return {
        "zombies": sum(_is_zombie(pid) for pid in children),
        "threads": threading.active_count(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "memory_bytes": sum(int(line.split()[1]) for line in rollup if "Private_" in line) * 1024,
    }


def measure(launch_type: str, cycles: int) -> dict[str, Any]:
    """All cycles of one launch type, here."""
    for _ in range(min(UNCOUNTED, cycles)):
        cycle(launch_type)
    before = inventory()
    seconds = [cycle(launch_type) for _ in range(cycles)]
    after = inventory()
    grown = {what: after[what] - before[what] for what in before}
    return {"cycles": cycles, "seconds": seconds, "grown": grown, "zombies": after["zombies"]}


def measure_apart(launch_type: str, cycles: int) -> dict[str, Any]:
    """The same in an interpreter of its own."""
    with tempfile.TemporaryDirectory() as directory:
        env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": directory}
        command = [sys.executable, __file__, "--one", launch_type, "--cycles", str(cycles)]
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def faults(found: dict[str, Any]) -> list[str]:
    """Which promises do not hold."""
    grown = found["grown"]
    broken = {
        f"{found['zombies']} zombies": found["zombies"] > 0,
        f"{grown['threads']} more threads": grown["threads"] > 0,
        f"{grown['descriptors']} more descriptors": grown["descriptors"] > DESCRIPTORS,
        "too much memory": grown["memory_bytes"] > MEMORY_BYTES,
        "a cycle takes too long": statistics.median(found["seconds"]) > CYCLE_S,
    }
    return [what for what, is_so in broken.items() if is_so]


def show(launch_type: str, found: dict[str, Any]) -> None:
    """A row."""
    times = sorted(seconds * 1000 for seconds in found["seconds"])
    grown = found["grown"]
    print(
        f"{launch_type:>9}{found['cycles']:>8}{statistics.median(times):>9.0f} ms{times[-1]:>9.0f} ms"
        f"{found['zombies']:>9}{grown['threads']:>+9}{grown['descriptors']:>+13}"
        f"{grown['memory_bytes'] / 2**20:>+10.2f} MiB",
        flush=True,
    )
    for fault in faults(found):
        print(f"  {fault}")


def main() -> None:
    """Prints the table; exits with 1 if a figure is not as promised."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cycles", type=int, default=1000)
    parser.add_argument("--launch-types", default="local_mt,local_mp")
    parser.add_argument("--one", help="measure only this launch type, here, and print JSON")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="seconds; to see that it runs")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.cycles)))
        return
    cycles = 3 if options.quick else options.cycles
    print(
        f"{'':>9}{'cycles':>8}{'median':>12}{'worst':>12}{'zombies':>9}{'threads':>9}"
        f"{'descriptors':>13}{'memory':>14}"
    )
    found = {}
    for launch_type in options.launch_types.split(","):
        found[launch_type] = measure_apart(launch_type, cycles)
        show(launch_type, found[launch_type])
    if options.json:
        from benchmarks.harness import command_line as report

        report.write_report(options.json, {"cycles": found})
    raise SystemExit(1 if any(faults(one) for one in found.values()) else 0)


def _children() -> list[int]:
    found: list[int] = []
    for path in Path("/proc/self/task").glob("*/children"):
        found += map(int, path.read_text().split())
    return found


def _is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


if __name__ == "__main__":
    main()
