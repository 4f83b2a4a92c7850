"""What Slurm's commands say about a job. The commands are scripts here, first on PATH."""

from __future__ import annotations

import pytest

from launchpad.errors import LaunchError
from launchpad.launch.backends.slurm import squeue
from launchpad.launch.backends.slurm.squeue import JobState
from tests.slurm.conftest import Commands


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("17|17|PENDING|Resources|10:00|10:00", JobState("PENDING", "Resources", None, 600.0)),
        ("17|17|RUNNING|None|9:58|10:00", JobState("RUNNING", "", 598.0, 600.0)),
        ("17|17|RUNNING|None|1-02:03:04|2-00:00:00", JobState("RUNNING", "", 93784.0, 172800.0)),
        ("17|17|RUNNING|None|UNLIMITED|UNLIMITED", JobState("RUNNING")),
        ("17|17|RUNNING|None|INVALID|1:00", JobState("RUNNING", "", None, 60.0)),
        ("17|17|TIMEOUT|TimeLimit|0:00|1:00", JobState("TIMEOUT", "TimeLimit", None, 60.0)),
    ],
)
def test_a_line_of_squeue_is_a_state(line: str, state: JobState) -> None:
    assert squeue.parse(line, "17") == state


def test_a_task_of_a_job_array_is_not_taken_for_another_one(commands: Commands) -> None:
    # The last task has the number of the array, with which squeue lists all of them.
    siblings = "17_0|18|COMPLETED|None|1:00|1:00\\n17_[2-3]|17|PENDING|Resources|1:00|1:00"
    commands.make("squeue", f"printf '{siblings}\\n17_1|19|RUNNING|None|0:30|1:00\\n'")

    by_task = squeue.state_of("17_1")
    by_number = squeue.state_of("19")

    assert by_task == by_number == JobState("RUNNING", "", 30.0, 60.0, "17_1")


@pytest.mark.parametrize("line", ["Welcome to the cluster", "18|18|FAILED|None|0:00|1:00", "|"])
def test_a_line_of_another_form_or_job_says_nothing_about_the_job(
    commands: Commands, line: str
) -> None:
    commands.make("squeue", f"echo '{line}'")

    assert squeue.state_of("17") is None


def test_a_job_that_slurm_has_forgotten_has_ended(commands: Commands) -> None:
    commands.make("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")

    state = squeue.state_of("17")

    assert state is not None
    assert state.has_ended
    assert str(state) == "no longer known to Slurm"


def test_a_controller_that_does_not_answer_says_nothing_about_the_job(commands: Commands) -> None:
    commands.make(
        "squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1"
    )

    assert squeue.state_of("17") is None


def test_the_number_of_a_submitted_job_comes_without_the_cluster(commands: Commands) -> None:
    commands.make("sbatch", "echo '17;big'")

    assert squeue.submit("job.sh") == "17"


def test_a_refused_job_is_reported_with_slurms_reason(commands: Commands) -> None:
    commands.make("sbatch", "echo 'sbatch: error: invalid partition specified: nosuch' >&2; exit 1")

    with pytest.raises(
        LaunchError, match="Slurm refuses the job: invalid partition specified: nosuch"
    ):
        squeue.submit("job.sh")


def test_a_host_without_slurm_is_told_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")

    with pytest.raises(LaunchError, match="needs Slurm's command `sbatch`"):
        squeue.check_commands("slurm", ["sbatch"])
