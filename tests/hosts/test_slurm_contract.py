"""The contract of backends, on the three nodes of a Slurm job. The launcher runs in the job."""

from __future__ import annotations

import pytest

from tests.hosts import contract
from tests.hosts.network import Network
from tests.hosts.slurm import N_CPUS, USER, Slurm

JOB = ["salloc", "--nodes=3", "--ntasks-per-node=1", f"--cpus-per-task={N_CPUS}", "--mem=0"]


@pytest.mark.timeout(contract.DEADLINE_S)
def test_the_contract_holds_on_the_nodes_of_a_job(slurm_network: Network, slurm: Slurm) -> None:
    contract.check(slurm_network.hosts[0], "test_slurm", slurm.home, user=USER, within=JOB)
