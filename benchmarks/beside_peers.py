"""A call between two processes of one host, and a large array, beside what others take for it.

    python benchmarks/beside_peers.py [--dm-launchpad PYTHON] [--monarch PYTHON] [--rounds N]

gRPC and Ray come with `make bench` and `make test`. dm-launchpad needs Python 3.10 or older, Monarch torch:
each is measured by an interpreter that has it, if one is given. All take turns in each round; a figure is
the median over the rounds, and a ratio compares within a round. benchmarks/peers/ has a file for each.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path

from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.figures import Table, in_turns, ratios

PEERS = Path(__file__).parent / "peers"
OURS = "launchpad"
LIMIT_S = 300.0
FIGURES = {
    "a blocking call of an int, µs": "call_us",
    "an array of 16 MB there and back, GB/s": "array_gb_s",
}


def measure(*command: str) -> dict[str, float]:
    """Run one of the scripts, and return the figures that it prints."""
    # Workers import what the script has imported from its folder.
    environment = {**os.environ, "PYTHONPATH": str(PEERS)}
    done = subprocess.run(
        command, cwd=PEERS, env=environment, capture_output=True, text=True, timeout=LIMIT_S
    )
    for line in done.stdout.splitlines():
        _, is_there, figures = line.partition("MEASURED ")
        if is_there:
            return dict(json.loads(figures.partition("}")[0] + "}"))
    raise SystemExit(f"{command} printed no figures:\n{done.stdout}\n{done.stderr}")


def main() -> None:
    """Measure all that can be, and print a table of each figure."""
    parser = Parser(__doc__, rounds=5)
    parser.add_argument("--dm-launchpad", metavar="PYTHON", help="one that has dm-launchpad")
    parser.add_argument("--monarch", metavar="PYTHON", help="one that has torchmonarch")
    options = parser.parse_args()
    contenders = {
        OURS: partial(measure, sys.executable, "launchpad_program.py"),
        "gRPC": partial(measure, sys.executable, "grpc_pickles.py"),
        "Ray": partial(measure, sys.executable, "ray_actors.py"),
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
        ours = [each[figure] for each in rounds[OURS]]
        for name, figures in rounds.items():
            if figure in figures[0]:
                values = [each[figure] for each in figures]
                table.row(name, statistics.median(values), ratios(values, ours))
    finish(options, rounds)


if __name__ == "__main__":
    main()
