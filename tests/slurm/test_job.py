"""A submitted job: its files are the user's alone. Slurm's commands are scripts here, first on PATH."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from launchpad.errors import LaunchError
from launchpad.launch.backends.slurm import job as job_module
from launchpad.launch.backends.slurm import script
from launchpad.launch.backends.slurm.job import BatchJob
from launchpad.launch.backends.slurm.squeue import JobState
from tests.slurm.conftest import Commands
from tests.waiting import until

SECRET = b"what nodes need to join\n"


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_module, "_POLL_S", 0.05)


def submitted(tmp_path: Path, states: list[JobState], ends: list[str]) -> BatchJob:
    job = BatchJob(
        ["--nodes=2"],
        2,
        tmp_path / "shared/run",
        SECRET,
        tmp_path / "slurm-job.log",
        states.append,
        ends.append,
    )
    job.begin()
    return job


def test_only_the_user_can_read_what_nodes_need_to_join(tmp_path: Path, commands: Commands) -> None:
    job = submitted(tmp_path, [], [])
    folder = tmp_path / "shared/run"

    assert job.number == "17"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / script.JOIN).stat().st_mode & 0o777 == 0o600
    assert (folder / script.JOIN).read_bytes() == SECRET
    assert commands.calls("sbatch") == [f"--parsable {folder / 'job.sh'}"]
    assert SECRET.decode().strip() not in (folder / "job.sh").read_text()
    job.close(was_asked=False)


def test_a_job_that_waits_is_cancelled_at_the_end_and_its_files_are_removed(
    tmp_path: Path, commands: Commands
) -> None:
    states: list[JobState] = []
    job = submitted(tmp_path, states, [])
    until(lambda: bool(states))

    job.close(was_asked=False)

    assert states == [JobState("PENDING", "Priority", None, 60.0)]
    assert commands.calls("scancel") == ["17"]
    assert not (tmp_path / "shared/run").exists()


def test_the_end_of_a_job_is_reported_once_with_slurms_reason(
    tmp_path: Path, commands: Commands
) -> None:
    ends: list[str] = []
    job = submitted(tmp_path, [], ends)

    commands.make("squeue", "echo '17|17|TIMEOUT|TimeLimit|0:00|1:00'")
    until(lambda: bool(ends))
    job.close(was_asked=True)

    assert ends == ["TIMEOUT (TimeLimit)"]
    assert commands.calls("scancel") == []


def test_the_files_of_a_killed_launcher_are_removed_by_a_later_one(
    tmp_path: Path, commands: Commands
) -> None:
    # Which cluster they belong to, nobody knows: clusters may share a home folder.
    for name, age_s in (("used", 24 * 3600.0), ("left-behind", 8 * 24 * 3600.0)):
        folder = tmp_path / "shared" / name
        folder.mkdir(parents=True)
        os.utime(folder, (time.time() - age_s,) * 2)

    job = submitted(tmp_path, [], [])

    assert sorted(os.listdir(tmp_path / "shared")) == ["run", "used"]
    job.close(was_asked=False)


def test_a_launcher_shows_others_that_it_uses_its_files(tmp_path: Path, commands: Commands) -> None:
    job = submitted(tmp_path, [], [])
    folder = tmp_path / "shared/run"
    os.utime(folder, (0, 0))

    until(lambda: folder.stat().st_mtime > time.time() - 60)

    job.close(was_asked=False)


def test_the_user_is_told_once_that_squeue_says_nothing(
    tmp_path: Path,
    commands: Commands,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(job_module, "_SILENT_S", 0.0)
    commands.make("squeue", "exit 1")

    job = submitted(tmp_path, [], [])
    until(lambda: len(commands.calls("squeue")) > 3)
    job.close(was_asked=False)

    said = "squeue has said nothing about Slurm job 17 for 0 s"
    assert [record.getMessage().startswith(said) for record in caplog.records] == [True]


def test_ctrl_c_while_a_job_is_submitted_cancels_it(tmp_path: Path, commands: Commands) -> None:
    commands.make("sbatch", f"kill -INT {os.getpid()}; echo 17")

    with pytest.raises(KeyboardInterrupt):
        submitted(tmp_path, [], [])

    assert commands.calls("scancel") == ["17"]
    assert not (tmp_path / "shared/run").exists()


def test_a_refused_job_leaves_no_file(tmp_path: Path, commands: Commands) -> None:
    commands.make("sbatch", "echo 'sbatch: error: Batch job submission failed' >&2; exit 1")

    with pytest.raises(LaunchError, match="Slurm refuses the job: Batch job submission failed"):
        submitted(tmp_path, [], [])

    assert not (tmp_path / "shared/run").exists()
