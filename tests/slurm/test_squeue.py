"""What Slurm's commands say about a job. The commands are scripts here, first on PATH."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from launchpad.errors import LaunchError
from launchpad.launch.backends.slurm import squeue
from launchpad.launch.backends.slurm.squeue import JobState

Fake = Callable[[str, str], None]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Return a function that makes a command of a shell script."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def make(name: str, script: str) -> None:
        file = tmp_path / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    return make


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("PENDING|Resources|10:00|10:00", JobState("PENDING", "Resources", None, 600.0)),
        ("RUNNING|None|9:58|10:00", JobState("RUNNING", "", 598.0, 600.0)),
        ("RUNNING|None|1-02:03:04|2-00:00:00", JobState("RUNNING", "", 93784.0, 172800.0)),
        ("RUNNING|None|UNLIMITED|UNLIMITED", JobState("RUNNING")),
        ("RUNNING|None|INVALID|1:00", JobState("RUNNING", "", None, 60.0)),
        ("TIMEOUT|TimeLimit|0:00|1:00", JobState("TIMEOUT", "TimeLimit", None, 60.0)),
    ],
)
def test_a_line_of_squeue_is_a_state(line: str, state: JobState) -> None:
    assert squeue.parse(line) == state


def test_a_job_that_slurm_has_forgotten_has_ended(fake: Fake) -> None:
    fake("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")

    state = squeue.state_of("17")

    assert state is not None
    assert state.has_ended
    assert str(state) == "no longer known to Slurm"


def test_a_controller_that_does_not_answer_says_nothing_about_the_job(fake: Fake) -> None:
    fake("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")

    assert squeue.state_of("17") is None


def test_the_number_of_a_submitted_job_comes_without_the_cluster(fake: Fake) -> None:
    fake("sbatch", "echo '17;big'")

    assert squeue.submit("job.sh") == "17"


def test_a_refused_job_is_reported_with_slurms_reason(fake: Fake) -> None:
    fake("sbatch", "echo 'sbatch: error: invalid partition specified: nosuch' >&2; exit 1")

    with pytest.raises(
        LaunchError, match="Slurm refuses the job: invalid partition specified: nosuch"
    ):
        squeue.submit("job.sh")


def test_a_host_without_slurm_is_told_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")

    with pytest.raises(LaunchError, match="needs Slurm's command `sbatch`"):
        squeue.check_commands("slurm", ["sbatch"])
