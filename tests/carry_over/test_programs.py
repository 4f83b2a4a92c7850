"""A program written for dm-launchpad, with the imports that it has, as `python -m`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.helpers import scripts


def test_iris_coordinates_workers_and_ends_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.carry_over.programs.iris_like"]
    flags = ["--lp_launch_type=local_mp", "--lp_termination_notice_secs=0"]

    done = scripts.run(command, f"--logdir={tmp_path}", *flags, cwd=scripts.ROOT)

    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split("| ")[1] for line in done.stdout.splitlines() if "| iteration" in line]
    assert lines == [
        "iteration 19: -0.003",
        "iteration 39: -0.000",
        "iteration 59: -0.000",
    ]
    assert "Thread 0x" not in done.stdout  # no stacks of workers that were not to have any time
    assert -1e-4 < float((tmp_path / "iteration_0059").read_text()) <= 0
