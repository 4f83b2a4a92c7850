"""Completion of command lines, as a shell asks for it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import launchpad as lp

pytest.importorskip("argcomplete")


def completed(line: str, tmp_path: Path) -> list[str]:
    """What could stand at the end of the line."""
    answer = tmp_path / "answer"
    shell = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
    }
    command = [sys.executable, "-m", "launchpad"]
    subprocess.run(command, env={**os.environ, **shell}, check=True, timeout=30)
    return [word.strip() for word in answer.read_text().split("\v")]


def test_commands_and_their_options_are_completed(tmp_path: Path) -> None:
    assert completed("launchpad resta", tmp_path) == ["restart"]
    assert completed("launchpad graph --format s", tmp_path) == ["svg"]


def test_names_of_runs_groups_and_workers_are_completed(tmp_path: Path) -> None:
    program = lp.Program(f"completed-{time.monotonic_ns()}")
    for _ in range(2):
        program.add_node(lp.PyNode(lp.wait_for_stop), label="waiter")

    with lp.launch(program, "test_mt") as running:
        runs = completed(f"launchpad stop {program.name[:-1]}", tmp_path)
        labels = completed(f"launchpad logs {program.name} w", tmp_path)
        workers = completed(f"launchpad restart {program.name} w", tmp_path)

    assert runs == [program.name, running.log_directory.name]
    assert sorted(labels) == ["waiter", "waiter-0", "waiter-1"]
    assert workers == ["waiter-0", "waiter-1"]
