"""What we promise of calls, beside the figures of the last `make bench`, and whether it holds.

    python benchmarks/bars.py [--json FILE] [--rounds N] [--quick]

With --rounds or --quick it measures anew instead, which takes minutes. Exits with 1 when a promise
does not hold.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.calls import bars, machine, report
from benchmarks.calls.measurements import SOAK, SPEED
from benchmarks.calls.run import parser, run

HERE = Path(__file__).resolve().parent
REPORTS = [HERE / "results" / "rpc.json", HERE / "results" / "soak.json"]


def main() -> None:
    options = parser(__doc__, rounds=0).parse_args()
    if options.rounds or options.quick:
        found = run(SPEED | SOAK, options)
    else:
        found = last_report()
        print(machine.in_words(found["machine"]))
        bars.show(found)
        if options.json:
            report.write(options.json, found)
    raise SystemExit(1 if bars.misses(found) else 0)


def last_report() -> dict[str, Any]:
    """Both of them as one."""
    found: dict[str, Any] = {}
    for path in REPORTS:
        if not path.exists():
            raise SystemExit(f"there is no {path}: run `make bench` first")
        found |= json.loads(path.read_text())
    return found


if __name__ == "__main__":
    main()
