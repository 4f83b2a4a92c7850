"""`python -m launchpad logs --since … --grep …`: which lines are shown."""

from __future__ import annotations

import argparse
import os
import re
import time
from datetime import datetime
from pathlib import Path

import pytest

import launchpad as lp
from launchpad.cli import records
from launchpad.cli.main import main
from launchpad.cli.records import LogFilter
from tests.cli.conftest import Command
from tests.helpers.programs import single

NOON = datetime(2026, 11, 26, 12).timestamp()


@pytest.mark.parametrize(
    ("line", "time"),
    [
        ("2026-11-26 12:00:00,000 INFO step 1", NOON),
        ("2026-11-26T12:00:00.000 step 1", NOON),
        ("[2026-11-26 12:00:00] step 1", NOON),
        ("INFO:2026-11-26 12:00:00 step 1", NOON),
        ("step 2026", None),
        ("9999-99-99 99:99:99 none", None),
        ("I9999 99:99:99.0 none", None),
    ],
)
def test_a_line_is_as_old_as_the_time_with_which_it_begins(line: str, time: float | None) -> None:
    assert records.time_of(line) == time


@pytest.mark.parametrize("days", [0, 1, 300])
def test_a_time_of_absl_is_of_the_last_twelve_months(days: int) -> None:
    at = time.time() - days * 86_400
    line = f"I{datetime.fromtimestamp(at):%m%d %H:%M:%S.%f} 7 train.py:3] step 1"

    assert records.time_of(line) == pytest.approx(at, abs=0.001)


def test_lines_without_a_time_belong_to_the_line_before_them() -> None:
    lines = [
        b"no time yet",
        b"2026-11-26 11:59:59 old",
        b"  its traceback",
        b"\x1b[31m2026-11-26 12:00:01 new\x1b[0m",
        b"  its traceback",
    ]

    assert LogFilter(NOON, None).passed(lines) == [lines[0], *lines[3:]]


def test_a_length_of_time_or_a_time_says_since_when() -> None:
    assert records.time_since("1.5h") == pytest.approx(time.time() - 5400, abs=5)
    assert records.time_since("2026-11-26T12:00") == NOON
    with pytest.raises(argparse.ArgumentTypeError, match="neither a length of time"):
        records.time_since("soon")


@pytest.fixture
def run_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run that has ended; the first attempt of its worker an hour ago."""
    monkeypatch.setenv("LAUNCHPAD_LOGGING_DIR", str(tmp_path))
    policy = lp.RestartPolicy(max_restarts=1, backoff=0)
    running = lp.launch(
        single(lp.PyNode(print_and_fail_once), "printer", restart=policy), "test_mt"
    )
    running.wait()
    first = running.log_directory / "printer-0.log"
    os.utime(first, (time.time() - 3600,) * 2)
    return running.log_directory.name


def print_and_fail_once() -> None:
    attempt = lp.current().attempt
    print(f"attempt {attempt}\nreward {attempt}")
    if attempt == 1:
        raise ValueError("once")


def test_lines_are_chosen_by_time_and_expression(run_id: str, output_of: Command) -> None:
    since = output_of("logs", "--since", "10m", run_id, "printer")
    rewards = output_of("logs", "--grep", r"^reward \d", run_id, "printer")
    everything = output_of("logs", run_id, "printer")

    assert since == "attempt 2\nreward 2\n"
    assert rewards == "reward 1\nreward 2\n"
    assert everything.startswith("attempt 1")
    assert everything.endswith(since)


def test_what_is_no_expression_is_a_wrong_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["logs", "--grep", "(", "printer"])

    assert re.search(r"'\(' is no regular expression: ", capsys.readouterr().err)
