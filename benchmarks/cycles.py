"""The time to launch and stop a small program, and the leftovers of many cycles in one process.

    python benchmarks/cycles.py --cycles 1000
    python benchmarks/cycles.py --launch-types test_kubernetes --nodes 8 --cycles 5

A cycle launches a program of N nodes, calls each of them, and stops it. The nodes are threads at first, then
processes. Each launch type has an interpreter of its own, and up to 100 cycles that are not counted, which
import modules and fill caches and heaps. The script prints the time of a cycle, and what the launching
process has gained from the first counted cycle to the last: threads, descriptors, zombies, private memory.

On Kubernetes the stop ends when nothing of the program is left. KUBECONFIG and LAUNCHPAD_KUBERNETES name the
cluster. The script has to run where it can reach pods: on a node of the cluster, or in a pod.
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
    + """
test_kubernetes: all have answered, worst  | cycles/test_kubernetes/answer_s/max  | ≤ 10 s
test_kubernetes: nothing is left, worst    | cycles/test_kubernetes/stop_s/max    | ≤ 10 s
"""
)
UNCOUNTED = 100


class Echo:
    """A server, one in every node."""

    def echo(self, value: int) -> int:
        return value


def cycle(launch_type: str, nodes: int) -> tuple[float, float]:
    """Return the seconds from launch() to the last answer, and the seconds of stop()."""
    program = replicas("echo", nodes, lambda: lp.CourierNode(Echo))
    began = time.perf_counter()
    with launch(program, launch_type) as running:
        answers = [running.client("echo", i).futures.echo(i) for i in range(nodes)]
        assert [answer.result(120) for answer in answers] == list(range(nodes))
        answered = time.perf_counter()
    return answered - began, time.perf_counter() - answered


def inventory() -> dict[str, float]:
    """Return the zombies, threads, descriptors and private memory of this process."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    rollup = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return {
        "zombies": sum(_is_zombie(pid) for pid in holdings.children("self")),
        "threads": threading.active_count(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "memory_mib": sum(int(line.split()[1]) for line in rollup if "Private_" in line) / 1024,
    }


def measure(launch_type: str, cycles: int, nodes: int) -> dict[str, Any]:
    """Run all cycles of one launch type in this process; return the figures."""
    for _ in range(min(UNCOUNTED, cycles)):
        cycle(launch_type, nodes)
    before = inventory()
    times = [cycle(launch_type, nodes) for _ in range(cycles)]
    after = inventory()
    growth = {kind: after[kind] - before[kind] for kind in before}
    answers, stops = zip(*times, strict=True)
    return {
        **growth,
        "zombies": after["zombies"],
        "cycles": cycles,
        "seconds": spread(map(sum, times)),
        "answer_s": spread(answers),
        "stop_s": spread(stops),
    }


def main() -> None:
    parser = Parser(__doc__, {"cycles": 3}, cycles=1000, nodes=4, launch_types=list(TYPES))
    options = parser.parse_args()
    rows = {}
    for launch_type in options.launch_types:
        with tempfile.TemporaryDirectory() as directory:
            env = environment(TMPDIR=directory)
            row = apart(measure, launch_type, options.cycles, options.nodes, env=env)
        rows[launch_type] = row
        medians = [f"{figure} {row[figure]['median']:.2f} s" for figure in ("answer_s", "stop_s")]
        print(f"{launch_type}: {options.cycles} cycles; medians: {', '.join(medians)}")
    own_bars = [bar for bar in BARS if bar.figure.split("/")[1] in rows]
    bars.finish(options, {"cycles": rows}, own_bars)


def _is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


if __name__ == "__main__":
    main()
