"""A call between two processes of one host, and a large array, beside what others take for it.

    python benchmarks/beside_peers.py [--dm-launchpad PYTHON] [--monarch PYTHON] [--rounds N]

gRPC and Ray come with `make bench` and `make test`. dm-launchpad needs Python 3.10 or older, Monarch torch:
each is measured by an interpreter that has it, if one is given. All take turns in each round; a figure is
the median over the rounds, and a ratio compares within a round. benchmarks/peers/ has a file for each.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

PEERS = Path(__file__).parent / "peers"
OURS = "launchpad"
LIMIT_S = 300.0


def measure(python: str, *script: str) -> dict[str, float]:
    """Run one of the scripts, and return the figures that it prints."""
    # Workers import what the script has imported from its folder.
    environment = {**os.environ, "PYTHONPATH": str(PEERS)}
    done = subprocess.run(
        [python, *script],
        cwd=PEERS,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    for line in done.stdout.splitlines():
        _, is_there, figures = line.partition("MEASURED ")
        if is_there:
            return dict(json.loads(figures.partition("}")[0] + "}"))
    raise SystemExit(f"{python} {script} printed no figures:\n{done.stdout}\n{done.stderr}")


def main() -> None:
    """Measure all that can be, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dm-launchpad", metavar="PYTHON", help="one that has dm-launchpad")
    parser.add_argument("--monarch", metavar="PYTHON", help="one that has torchmonarch")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    contenders: dict[str, list[str]] = {
        OURS: [sys.executable, "launchpad_program.py"],
        "gRPC": [sys.executable, "grpc_pickles.py"],
        "Ray": [sys.executable, "ray_actors.py"],
    }
    if options.dm_launchpad:
        contenders["dm-launchpad"] = [options.dm_launchpad, "launchpad_program.py", "--noarray"]
    if options.monarch:
        contenders["Monarch"] = [options.monarch, "monarch_actors.py"]

    rounds: dict[str, list[dict[str, float]]] = defaultdict(list)
    for number in range(1, options.rounds + 1):
        for name, command in contenders.items():
            rounds[name].append(measure(*command))
            print(f"round {number}: {name} {rounds[name][-1]}", file=sys.stderr)

    print_table("a blocking call of an int, µs", "call_us", rounds)
    print_table("an array of 16 MB there and back, GB/s", "array_gb_s", rounds)


def print_table(title: str, figure: str, rounds: dict[str, list[dict[str, float]]]) -> None:
    """Print a figure of each, and how far it is from ours."""
    print(f"\n{title}")
    for name, figures in rounds.items():
        if figure not in figures[0]:
            continue
        value = statistics.median(each[figure] for each in figures)
        pairs = zip(rounds[OURS], figures, strict=True)
        ratio = statistics.median(its[figure] / ours[figure] for ours, its in pairs)
        print(f"  {name:14} {value:10.2f} {ratio:8.2f} of ours")


if __name__ == "__main__":
    main()
