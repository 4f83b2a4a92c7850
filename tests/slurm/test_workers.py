"""A launch on Slurm, whose commands are scripts here, first on PATH."""

from __future__ import annotations

import pytest

import launchpad as lp
from launchpad.launch.backends.slurm import workers
from tests.slurm.conftest import Commands


def test_nodes_that_do_not_join_fail_the_launch_although_squeue_does_not_answer(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setattr(workers, "_JOIN_S", 0.5)
    commands.make("squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    commands.make("srun", "exec sleep 1000")
    program = lp.Program("train")
    program.add_node(lp.PyNode(print), label="main")

    with pytest.raises(lp.ProgramFailed) as caught:
        lp.run(program, "test_slurm", nodes=2)

    assert "0 of the 2 nodes of Slurm job 17 have joined within 0.5 s" in str(caught.value)
