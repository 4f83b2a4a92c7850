"""Completion of command lines, as a shell asks for it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.conftest import launched
from tests.helpers import scripts

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
    done = scripts.run([sys.executable, "-m", "launchpad"], env=shell)
    assert done.returncode == 0, done.stderr
    return [word.strip() for word in answer.read_text().split("\v")]


def test_commands_and_names_of_runs_groups_and_workers_are_completed(tmp_path: Path) -> None:
    with launched("test_mt", "completed") as running:
        runs = completed("launchpad stop compl", tmp_path)
        labels = completed("launchpad logs completed t", tmp_path)
        workers = completed("launchpad restart completed t", tmp_path)

    assert runs == ["completed", running.run_id]
    assert sorted(labels) == ["talker", "talker-0", "talker-1"]
    assert workers == ["talker-0", "talker-1"]
    assert completed("launchpad resta", tmp_path) == ["restart"]
