"""Old logs are deleted at a launch: only our own, only old ones, never a running program's."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import launchpad as lp
from launchpad.launch.rundir.directory import sweep_old_logs
from tests.helpers.programs import single

OLD_S = 31 * 86_400


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAUNCHPAD_LOGGING_DIR", str(tmp_path / "logs"))
    monkeypatch.delenv("LAUNCHPAD_LOG_DAYS", raising=False)
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"


def run_once() -> Path:
    return lp.testing.run(single(lp.PyNode(print, "hello"), "printer")).log_directory


def age(directory: Path, seconds: float = OLD_S) -> None:
    """As if nobody had touched it for so long; and as if the last sweep were longer ago than an hour."""
    then = time.time() - seconds
    for path in (*directory.rglob("*"), directory):
        os.utime(path, (then, then))
    (directory.parent / ".swept").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("kept_days", "days_old", "is_deleted"),
    [("", 29, False), ("", 31, True), ("1", 2, True), ("0", 1000, False)],
)
def test_old_logs_are_deleted_at_the_next_launch_after_a_month_or_as_chosen(
    base: Path,
    monkeypatch: pytest.MonkeyPatch,
    kept_days: str,
    days_old: float,
    is_deleted: bool,
) -> None:
    monkeypatch.setenv("LAUNCHPAD_LOG_DAYS", kept_days)
    logs = run_once()
    age(logs, days_old * 86_400)

    new = run_once()

    assert logs.exists() is not is_deleted
    assert new.exists()


@pytest.mark.parametrize(("swept_s_ago", "is_deleted"), [(60, False), (7200, True), (-1e9, True)])
def test_sound_pass_2_a_launch_within_an_hour_of_the_last_sweep_that_is_past_does_not_look_again(
    base: Path, swept_s_ago: float, is_deleted: bool
) -> None:
    logs = run_once()
    age(logs)
    (base / ".swept").touch()
    then = time.time() - swept_s_ago
    os.utime(base / ".swept", (then, then))

    run_once()

    assert logs.exists() is not is_deleted


@pytest.mark.parametrize("wrong_by_s", [-1e9, 1e9])
def test_sound_pass_2_a_clock_that_differs_from_the_file_system_s_deletes_no_logs(
    wrong_by_s: float, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    young = run_once()
    (base / ".swept").unlink()
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + wrong_by_s)

    new = run_once()

    assert young.exists()
    assert new.exists()
    assert (base / ".swept").exists()


def test_the_logs_of_a_program_that_runs_are_kept_however_silent_it_is(base: Path) -> None:
    with lp.launch(single(lp.PyNode(lp.wait_for_stop)), "test_mt") as running:
        age(running.log_directory)
        (base / "new").mkdir()
        sweep_old_logs(base / "new")

        assert running.log_directory.exists()


@pytest.mark.parametrize("name", ["notes.txt", "state/learner-0/checkpoint"])
def test_a_directory_in_which_there_is_something_else_is_left_alone(base: Path, name: str) -> None:
    logs = run_once()
    (logs / name).parent.mkdir(parents=True, exist_ok=True)
    (logs / name).write_text("precious")
    age(logs)

    run_once()

    assert (logs / name).exists()
    assert (logs / "printer-0.log").exists()


def test_directories_that_are_not_named_as_ours_and_links_are_left_alone(
    base: Path, tmp_path: Path
) -> None:
    theirs, elsewhere = base / "my-results", tmp_path / "elsewhere"
    for directory in (theirs, elsewhere):
        directory.mkdir()
        (directory / "a-0.log").touch()
    link = base / "linked-1121-120000-abcd"
    link.symlink_to(elsewhere)
    age(theirs)
    age(elsewhere)

    run_once()

    assert (theirs / "a-0.log").exists()
    assert (elsewhere / "a-0.log").exists()
    assert link.is_symlink()
