"""The record of a run of the tests: the outcome of each, its seconds, and the processor time that it used.

`make test` and the other lanes write it to build/tests/LANE.jsonl ($LP_TEST_RECORD), a JSON object in a line:

    {"test": "tests/a.py::test_b", "outcome": "failed", "seconds": 1.2, "cpu_s": 0.7, "failure": "…"}
    {"session": 1}       pytest has ended with this exit status

`python -m tests.durations` shows where the time went. `.ci/run` reads what has failed, with a Python that has
no pytest.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

PATH_VARIABLE = "LP_TEST_RECORD"


@dataclass
class TestRow:
    """The result of one test; `failure` is the text that pytest shows for it."""

    __test__ = False  # pytest takes it for a test by its name

    test: str
    outcome: str
    seconds: float = 0.0
    cpu_s: float = 0.0
    failure: str = ""


def read(path: Path) -> tuple[list[TestRow], list[int]]:
    """Return the tests of a record, and the exit status of each pytest that wrote to it."""
    tests: list[TestRow] = []
    sessions: list[int] = []
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if "session" in row:
            sessions.append(row["session"])
        else:
            tests.append(TestRow(**row))
    return tests, sessions
