"""A submitted job: its files are the user's alone. Slurm's commands are scripts here, first on PATH."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launchpad.errors import LaunchError
from launchpad.launch.backends.slurm import script
from launchpad.launch.backends.slurm.job import BatchJob
from launchpad.launch.backends.slurm.squeue import JobState
from tests.waiting import until

SECRET = b"what nodes need to join\n"


class Commands:
    """Slurm's commands, as files in a folder. Each writes its arguments to a file of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def make(self, name: str, body: str = "") -> None:
        file = self._folder / name
        file.write_text(f'#!/bin/sh\necho "$@" >> {self._folder}/{name}.calls\n{body}\n')
        file.chmod(0o755)

    def calls(self, name: str) -> list[str]:
        file = self._folder / f"{name}.calls"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    commands = Commands(folder)
    commands.make("sbatch", "echo 17")
    commands.make("squeue", "echo 'PENDING|Priority|1:00|1:00'")
    commands.make("scancel")
    return commands


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

    commands.make("squeue", "echo 'TIMEOUT|TimeLimit|0:00|1:00'")
    until(lambda: bool(ends))
    job.close(was_asked=True)

    assert ends == ["TIMEOUT (TimeLimit)"]
    assert commands.calls("scancel") == []


def test_the_files_of_a_killed_launcher_are_removed_by_the_next_one(
    tmp_path: Path, commands: Commands
) -> None:
    commands.make("squeue", "echo 16")
    for number in ("15", "16"):
        folder = tmp_path / "shared" / f"run-{number}"
        folder.mkdir(parents=True)
        (folder / "job").write_text(number)

    job = submitted(tmp_path, [], [])

    assert sorted(os.listdir(tmp_path / "shared")) == ["run", "run-16"]
    job.close(was_asked=False)


def test_a_refused_job_leaves_no_file(tmp_path: Path, commands: Commands) -> None:
    commands.make("sbatch", "echo 'sbatch: error: Batch job submission failed' >&2; exit 1")

    with pytest.raises(LaunchError, match="Slurm refuses the job: Batch job submission failed"):
        submitted(tmp_path, [], [])

    assert not (tmp_path / "shared/run").exists()
