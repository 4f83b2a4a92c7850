"""The contract of backends, tried on the hosts of a network: the tests run on the first of them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.hosts.host import Host
from tests.hosts.requirements import ROOT

DEADLINE_S = 600.0
MOST_SKIPPED = 4
"""Tests that need a browser, a cluster or torch are skipped."""


def check(
    host: Host,
    launch_type: str,
    disk: Path,
    *,
    user: str,
    env: Mapping[str, str] | None = None,
    within: Sequence[str] = (),
) -> None:
    """Run the tests of the contract on a host, and raise AssertionError with their output if any fails.

    Args:
        launch_type: The only backend that they try.
        disk: A folder of the user's that all hosts share. Some tests save state for the next launch.
        env: Variables for the backend.
        within: A command that runs the tests, which are its further arguments.
    """
    tests = [sys.executable, "-m", "pytest", "-q", "-m", "", "-p", "no:cacheprovider"]
    places = ["-c", str(ROOT / "pyproject.toml"), f"--rootdir={ROOT}", f"--basetemp={disk}/t"]
    with host.popen(
        [*within, *tests, *places, str(ROOT / "tests/contract")],
        user=user,
        env={"LP_CONTRACT_BACKENDS": launch_type, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        output, _ = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 0, output
    passed = re.search(r"(\d+) passed(?:, (\d+) skipped)?", output)
    assert passed is not None, output
    assert int(passed[1]) > 40
    assert int(passed[2] or 0) <= MOST_SKIPPED, output
