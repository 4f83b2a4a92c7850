"""Slurm's commands, as scripts that are first on PATH."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


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
    commands.make("squeue", "echo '17|17|PENDING|Priority|1:00|1:00'")
    commands.make("scancel")
    return commands
