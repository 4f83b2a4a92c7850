"""A table of the promises about calls: each with its figure from the last `make bench`, and a verdict.

    python benchmarks/bars.py [--json FILE] [--rounds N] [--quick]

With --rounds or --quick, the script measures again first, which takes minutes. It exits with 1 when
a promise does not hold.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.calls.bars import BARS
from benchmarks.calls.run import SOAK, SPEED, run
from benchmarks.harness import bars, machine
from benchmarks.harness.command_line import Parser, write_report

RESULTS = Path(__file__).resolve().parent / "results"


def main() -> None:
    options = Parser(__doc__, {"rounds": 1}, rounds=0).parse_args()
    if options.rounds:
        report = run(SPEED | SOAK, options)
    else:
        report = last_report()
        print(machine.in_words(report["machine"]))
        bars.show(report, BARS)
        if options.json:
            write_report(options.json, report)
    raise SystemExit(1 if bars.misses(report, BARS) else 0)


def last_report() -> dict[str, Any]:
    """Return the reports of `rpc.py` and `soak.py`, merged into one."""
    report: dict[str, Any] = {}
    for path in (RESULTS / "rpc.json", RESULTS / "soak.json"):
        if not path.exists():
            raise SystemExit(f"there is no {path}: run `make bench` first")
        report |= json.loads(path.read_text())
    return report


if __name__ == "__main__":
    main()
