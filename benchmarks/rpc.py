"""What calls cost, beside what they cost elsewhere, measured here and now.

    python benchmarks/rpc.py [--only latency,pipelined] [--rounds N] [--json FILE] [--quick]

Every contender has a client and a server process of its own, new in every round; they take turns in
one run. A figure is the median over the rounds, with the range; a ratio compares within a round.
benchmarks/calls/ has a file for each measurement and for each contender, which say what they do.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.calls import latency, machine, pipelined
from benchmarks.calls.options import Options

MEASUREMENTS = {
    "latency": latency,
    "pipelined": pipelined,
}


def main() -> None:
    options = parse()
    report = {"machine": machine.describe()}
    print(machine.in_words(report["machine"]))
    for name in options.only:
        measurement = MEASUREMENTS[name]
        began = time.perf_counter()
        print(f"\n=== {name}: {measurement.__doc__.splitlines()[0]}", flush=True)
        report[name] = measurement.measure(Options(options.rounds, options.quick))
        measurement.show(report[name])
        print(f"({time.perf_counter() - began:.0f} s)", flush=True)
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--only", type=names, default=list(MEASUREMENTS), help=f"of: {', '.join(MEASUREMENTS)}"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the report to this file")
    parser.add_argument("--quick", action="store_true", help="seconds; to see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.rounds = 1
    return options


def names(text: str) -> list[str]:
    chosen = text.split(",")
    if unknown := set(chosen) - set(MEASUREMENTS):
        raise argparse.ArgumentTypeError(f"no measurement is called {' or '.join(unknown)}")
    return chosen


if __name__ == "__main__":
    main()
