"""The directories of runs that have ended are removed, whoever was killed meanwhile."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from launchpad.launch.rundir import locations


class Killed(BaseException):
    pass


def test_a_directory_whose_removal_was_cut_short_is_removed_by_the_next_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    (run / "deeper").mkdir(parents=True)
    for name in (locations.LOCK, "a.socket", "z.socket", "deeper/file"):
        (run / name).touch()
    n_left = 1

    def remove_a_little(path: object, **_: object) -> None:
        nonlocal n_left
        if not n_left:
            raise Killed
        n_left -= 1

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", remove_a_little)
        with pytest.raises(Killed):
            locations.remove(run)

    assert (run / locations.LOCK).exists()
    locations.sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []
