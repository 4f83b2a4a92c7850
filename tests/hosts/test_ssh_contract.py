"""The contract of backends, on three hosts over ssh."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.hosts import contract
from tests.hosts.network import Network
from tests.hosts.sshd import USER, Sshd
from tests.hosts.sshd import why_not as why_no_sshd
from tests.hosts.users import UID


@pytest.mark.timeout(contract.DEADLINE_S)
def test_the_contract_holds_on_hosts_over_ssh(hosts_are_possible: None, tmp_path: Path) -> None:
    reason = why_no_sshd()
    if reason:
        pytest.skip(reason)
    disk = tmp_path / "disk"
    disk.mkdir()
    os.chown(disk, UID, UID)
    with Network(3, shared=[disk]) as network:
        Sshd(network)

        contract.check(network.hosts[0], "test_ssh", disk, user=USER, env={"LP_HOSTS": "h1,h2,h3"})
