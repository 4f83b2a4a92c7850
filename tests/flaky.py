"""Which tests fail now and then: `make flaky`, before a larger merge.

It runs `make test` three times while other processes keep every core busy, and prints each test that failed,
with the number of runs in which it did. A test that is named here is mended or removed before anything else.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import run_record

ROOT = Path(__file__).parents[1]
RUNS = 3


def main() -> int:
    """Run the suite, print what failed, and return 1 if anything did."""
    failures: Counter[str] = Counter()
    texts: dict[str, str] = {}
    with busy_cores():
        for number in range(1, RUNS + 1):
            record = ROOT / f"build/flaky-{number}.jsonl"
            record.unlink(missing_ok=True)
            environment = {**os.environ, run_record.PATH_VARIABLE: str(record)}
            subprocess.run(["make", "test"], cwd=ROOT, env=environment)
            tests, sessions = run_record.read(record)
            print(f"== run {number} of {RUNS}: {len(tests)} tests, pytest's exit status {sessions}")
            for row in tests:
                if row.outcome in ("failed", "not collected"):
                    failures[row.test] += 1
                    texts[row.test] = row.failure

    for test, text in texts.items():
        print(f"\n-- {test}\n{text.strip()}")
    print(f"\n{len(failures)} tests failed in at least one of {RUNS} runs on a busy machine")
    for test, count in failures.most_common():
        print(f"  in {count} of {RUNS}: {test}")
    return 1 if failures else 0


@contextmanager
def busy_cores() -> Iterator[None]:
    """Keep every core busy for as long as the block lasts."""
    command = [sys.executable, "-c", "while True: pass"]
    loops = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


if __name__ == "__main__":
    sys.exit(main())
