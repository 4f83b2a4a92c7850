"""The promises about calls, beside the figures of the last `make bench`, and which of them hold.

    python benchmarks/bars.py [--json FILE] [--rounds N] [--quick]

With --rounds or --quick it measures anew instead, which takes minutes. Exits with 1 when a promise
does not hold.
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
    """Return both reports as one."""
    report: dict[str, Any] = {}
    for path in (RESULTS / "rpc.json", RESULTS / "soak.json"):
        if not path.exists():
            raise SystemExit(f"there is no {path}: run `make bench` first")
        report |= json.loads(path.read_text())
    return report


if __name__ == "__main__":
    main()
