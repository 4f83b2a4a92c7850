"""The contract of backends, on the three nodes of a Slurm job. The launcher runs in the job."""

from __future__ import annotations

import pytest

from tests.hosts import contract
from tests.hosts.network import Network
from tests.hosts.slurm import ON_ALL_NODES, USER, Slurm


@pytest.mark.timeout(contract.DEADLINE_S)
def test_the_contract_holds_on_the_nodes_of_a_job(slurm_network: Network, slurm: Slurm) -> None:
    h1 = slurm_network.hosts[0]

    contract.check(h1, "test_slurm", slurm.home, user=USER, within=ON_ALL_NODES)
