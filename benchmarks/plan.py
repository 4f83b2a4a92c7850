"""The time that a plan takes: `python benchmarks/plan.py`.

Half of the nodes are servers, half call one of them; their classes are this script's own, which is the
slow case, since they travel by value.
"""

from __future__ import annotations

import statistics
import time

import launchpad as lp
from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.figures import Table


class Server:
    def __init__(self, config: dict[str, object]) -> None:
        self.config = config

    def get(self) -> dict[str, object]:
        return self.config


class Client:
    def __init__(self, server: Server, config: dict[str, object]) -> None:
        self.server = server
        self.config = config

    def run(self) -> None:
        self.server.get()


def program_of(nodes: int) -> lp.Program:
    """Return a program with as many nodes."""
    config: dict[str, object] = {"layers": [64, 64], "lr": 0.1, "name": "benchmark"}
    program = lp.Program("benchmark")
    with program.group("server"):
        handles = [program.add_node(lp.CourierNode(Server, config)) for _ in range(nodes // 2)]
    with program.group("client"):
        for handle in handles:
            program.add_node(lp.PyClassNode(Client, handle, config))
    return program


def seconds_to_plan(nodes: int) -> float:
    """Return the seconds of one plan; the program is made before it begins."""
    program = program_of(nodes)
    began = time.perf_counter()
    lp.plan(program, "local_mp")
    return time.perf_counter() - began


def main() -> None:
    """Print a line for each size."""
    options = Parser(__doc__, {"rounds": 1, "sizes": [10, 100]}, rounds=7, sizes=[10, 100, 1000])
    options = options.parse_args()
    table = Table("nodes", dict.fromkeys(("median s", "min", "max"), ".3f"), width=8)
    rows = []
    for nodes in options.sizes:
        times = [seconds_to_plan(nodes) for _ in range(options.rounds)]
        rows.append({"nodes": nodes, "seconds": times})
        table.row(nodes, statistics.median(times), min(times), max(times))
    finish(options, {"plan": rows})


if __name__ == "__main__":
    main()
