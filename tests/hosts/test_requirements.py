"""A machine that can't have hosts says why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hosts import requirements, slurm, sshd


def test_a_missing_tool_is_named_and_the_lane_is_told_that_it_cannot_run_here(
    tmp_path: Path,
) -> None:
    if os.geteuid() != 0:
        pytest.skip("without root, that would be the reason")

    done = subprocess.run(
        [sys.executable, "-m", "tests.hosts.requirements"],
        cwd=requirements.ROOT,
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == requirements.CANNOT_RUN_HERE
    assert "needs ip, tc, mount, unshare, nsenter, setpriv, of iproute2" in done.stderr


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert "there is no munged, slurmctld" in slurm.why_not()
    assert "Debian's openssh-server" in sshd.why_not()
