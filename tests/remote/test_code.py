"""The code that goes to hosts without a shared disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchpad.errors import LaunchError
from launchpad.launch.backends.remote import code


def test_a_project_that_is_too_large_is_refused_with_its_largest_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    (project / "data").mkdir(parents=True)
    (project / "data" / "rows.csv").write_bytes(bytes(2048))
    (project / "script.py").write_text("pass")
    monkeypatch.setattr(code, "_LARGEST", 1024)

    with pytest.raises(
        LaunchError,
        match=r"is larger than the 1 KiB that.*first 2 files: data/rows\.csv 2 KiB, script\.py 4 B",
    ):
        code.files_to_send(project)


def test_a_project_with_more_files_than_can_be_looked_at_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "script.py").write_text("pass")
    monkeypatch.setattr(code, "_WALK_S", -1.0)

    with pytest.raises(LaunchError, match="has more files than can be looked at within"):
        code.files_to_send(tmp_path)
