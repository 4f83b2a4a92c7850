"""The time of a small call and of a large array between two processes of one host, beside other libraries.

    python benchmarks/beside_peers.py [--dm-launchpad PYTHON] [--monarch PYTHON] [--rounds N]

`make bench` and `make test` install gRPC and Ray. dm-launchpad needs Python 3.10 or older, and Monarch needs
torch: the script measures each of them with the interpreter that you name, and leaves it out if you name
none. All libraries take turns in each round. A figure is the median over the rounds, and a ratio compares
figures of the same round. benchmarks/peers/ has the scripts that other interpreters run.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.calls.contenders import grpcio_generic, ray_actors
from benchmarks.calls.contenders.contender import by_call
from benchmarks.calls.pairs import take_turns_once
from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.figures import Table, in_turns, ratios
from benchmarks.harness.processes import apart
from benchmarks.peers import measure as peers

PEERS = Path(__file__).parent / "peers"
OURS = "launchpad"
LIMIT_S = 300.0
FIGURES = {
    "a blocking call of an int, µs": "call_us",
    "an array of 16 MB there and back, GB/s": "array_gb_s",
}


def measure(*command: str) -> dict[str, float]:
    """Run one of the scripts, and return the figures that it prints."""
    # The workers import the script's neighbour `measure`, too, so its folder must be on their path.
    environment = {**os.environ, "PYTHONPATH": str(PEERS)}
    process = subprocess.run(
        command, cwd=PEERS, env=environment, capture_output=True, text=True, timeout=LIMIT_S
    )
    for line in process.stdout.splitlines():
        _, is_there, figures = line.partition("MEASURED ")
        if is_there:
            return dict(json.loads(figures.partition("}")[0] + "}"))
    raise SystemExit(f"{command} printed no figures:\n{process.stdout}\n{process.stderr}")


def measure_grpc() -> dict[str, float]:
    (figures,) = take_turns_once(
        [grpcio_generic.GRPCIO], lambda pair: pair.measure(by_call, peers.measure)
    ).values()
    return dict(figures)


def measure_ray() -> dict[str, float]:
    with ray_actors.cluster():
        return dict(ray_actors.start()(by_call, peers.measure))


def main() -> None:
    """Measure each library that is available, and print a table for each figure."""
    parser = Parser(__doc__, rounds=5)
    parser.add_argument("--dm-launchpad", metavar="PYTHON", help="one that has dm-launchpad")
    parser.add_argument("--monarch", metavar="PYTHON", help="one that has torchmonarch")
    options = parser.parse_args()
    contenders: dict[str, Callable[[], dict[str, float]]] = {
        OURS: partial(measure, sys.executable, "launchpad_program.py"),
        "gRPC": measure_grpc,
        "Ray": partial(apart, measure_ray),
    }
    if options.dm_launchpad:
        command = (options.dm_launchpad, "launchpad_program.py", "--noarray")
        contenders["dm-launchpad"] = partial(measure, *command)
    if options.monarch:
        contenders["Monarch"] = partial(measure, options.monarch, "monarch_actors.py")
    rounds = in_turns(contenders, options.rounds)
    for title, figure in FIGURES.items():
        print()
        table = Table(title, {"median": ".2f", "of ours": ".2f"}, width=46)
        ours = [turn[figure] for turn in rounds[OURS]]
        for name, figures in rounds.items():
            if figure in figures[0]:
                values = [turn[figure] for turn in figures]
                table.row(name, statistics.median(values), ratios(values, ours))
    finish(options, rounds)


if __name__ == "__main__":
    main()
