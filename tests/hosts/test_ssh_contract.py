"""The contract of backends, on three hosts over ssh: the tests run on the first of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hosts.network import Network
from tests.hosts.requirements import ROOT
from tests.hosts.sshd import USER, Sshd
from tests.hosts.sshd import why_not as why_no_sshd
from tests.hosts.users import UID

DEADLINE_S = 600.0
MOST_SKIPPED = 4
"""Tests that need a browser, a cluster or torch are skipped."""


@pytest.mark.timeout(DEADLINE_S)
def test_the_contract_holds_on_hosts_over_ssh(hosts_are_possible: None, tmp_path: Path) -> None:
    reason = why_no_sshd()
    if reason:
        pytest.skip(reason)
    # Some tests save state for the next launch, in a folder that all hosts must have.
    disk = tmp_path / "disk"
    disk.mkdir()
    os.chown(disk, UID, UID)
    with Network(3, shared=[disk]) as network:
        Sshd(network)
        command = [sys.executable, "-m", "pytest", "-q", "-m", "", "-p", "no:cacheprovider"]
        places = ["-c", str(ROOT / "pyproject.toml"), f"--rootdir={ROOT}", f"--basetemp={disk}/t"]
        with network.hosts[0].popen(
            [*command, *places, str(ROOT / "tests/contract")],
            user=USER,
            env={"LP_CONTRACT_BACKENDS": "test_ssh", "LP_HOSTS": "h1,h2,h3"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            output, _ = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 0, output
    passed = re.search(r"(\d+) passed(?:, (\d+) skipped)?", output)
    assert passed is not None, output
    assert int(passed[1]) > 40
    assert int(passed[2] or 0) <= MOST_SKIPPED, output
