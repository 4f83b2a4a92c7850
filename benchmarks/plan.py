"""How long a plan takes: `python benchmarks/plan.py`.

Half of the nodes are servers, half call one of them; their classes are this script's own, which is the
slow case, since they travel by value.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import launchpad as lp


class Server:
    def __init__(self, config: dict[str, object]) -> None:
        self.config = config

    def get(self) -> dict[str, object]:
        return self.config


class Client:
    def __init__(self, server: Server, config: dict[str, object]) -> None:
        self.server, self.config = server, config

    def run(self) -> None:
        self.server.get()


def program_of(nodes: int) -> lp.Program:
    """A program with as many nodes."""
    config: dict[str, object] = {"layers": [64, 64], "lr": 0.1, "name": "benchmark"}
    program = lp.Program("benchmark")
    with program.group("server"):
        handles = [program.add_node(lp.CourierNode(Server, config)) for _ in range(nodes // 2)]
    with program.group("client"):
        for handle in handles:
            program.add_node(lp.PyClassNode(Client, handle, config))
    return program


def seconds_to_plan(nodes: int) -> float:
    """One measurement; the program is made before it begins."""
    program = program_of(nodes)
    began = time.perf_counter()
    lp.plan(program, "local_mp")
    return time.perf_counter() - began


def main() -> None:
    """Prints a line for each size; `--json FILE` writes them too."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="a second; to see that it runs")
    options = parser.parse_args()
    print(f"{'nodes':>8} {'median s':>10} {'min':>8} {'max':>8}")
    rows = []
    for nodes in (10, 100) if options.quick else (10, 100, 1000):
        times = [seconds_to_plan(nodes) for _ in range(1 if options.quick else options.rounds)]
        rows.append({"nodes": nodes, "seconds": times})
        print(f"{nodes:>8} {statistics.median(times):>10.3f} {min(times):>8.3f} {max(times):>8.3f}")
    if options.json:
        from benchmarks.harness import command_line as report

        report.write_report(options.json, {"plan": rows})


if __name__ == "__main__":
    main()
