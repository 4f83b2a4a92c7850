"""Where the time of a run of the tests went: `python -m tests.durations [LANE]`, after `make test`.

It prints the processor time and the seconds of each folder, and of the slowest tests.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.run_record import TestRow, read

ROOT = Path(__file__).parents[1]
MOST = 40


def main() -> None:
    """Read the record of a lane, and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lane", nargs="?", default="test", help="test, test-ray, … (default: test)")
    lane = parser.parse_args().lane
    path = ROOT / "build/tests" / f"{lane}.jsonl"
    if not path.exists():
        parser.error(f"there is no {path}: run `make {lane}` first")
    tests, _ = read(path)

    by_folder: dict[str, list[TestRow]] = defaultdict(list)
    for row in tests:
        folder = "/".join(row.test.partition("::")[0].split("/")[1:-1]) or "tests"
        by_folder[folder].append(row)
    total = _cpu_s(tests)
    print(f"{'CPU s':>8} {'share':>6} {'seconds':>8} {'tests':>6}  folder")
    for folder, rows in sorted(by_folder.items(), key=lambda item: -_cpu_s(item[1])):
        share = _cpu_s(rows) / total if total else 0.0
        print(f"{_cpu_s(rows):8.1f} {share:6.1%} {_seconds(rows):8.1f} {len(rows):6}  {folder}")
    print(f"{total:8.1f} {1:6.0%} {_seconds(tests):8.1f} {len(tests):6}  all")
    print(f"\nThe {MOST} tests that used the most processor time:")
    for row in sorted(tests, key=lambda row: -row.cpu_s)[:MOST]:
        print(f"{row.cpu_s:8.1f} {'':6} {row.seconds:8.1f} {'':6}  {row.test}")


def _cpu_s(rows: Iterable[TestRow]) -> float:
    return sum(row.cpu_s for row in rows)


def _seconds(rows: Iterable[TestRow]) -> float:
    return sum(row.seconds for row in rows)


if __name__ == "__main__":
    main()
