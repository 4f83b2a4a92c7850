"""Networks of hosts for tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts import requirements
from tests.hosts.kubernetes import Kubernetes
from tests.hosts.kubernetes import why_not as why_no_kubernetes
from tests.hosts.network import Network
from tests.hosts.ray_cluster import RayCluster
from tests.hosts.ray_cluster import why_not as why_no_ray
from tests.hosts.slurm import Slurm
from tests.hosts.slurm import why_not as why_no_slurm
from tests.hosts.sshd import Sshd
from tests.hosts.sshd import why_not as why_no_sshd


@pytest.fixture(scope="session")
def hosts_are_possible() -> None:
    """Skip the test if this machine can't have hosts."""
    reason = requirements.why_not()
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def lasting_network(hosts_are_possible: None) -> Iterator[Network]:
    """Return a network of three hosts that lasts as long as the tests; tests take `network`."""
    with Network(3) as network:
        yield network


@pytest.fixture
def network(lasting_network: Network) -> Iterator[Network]:
    """Return a network of three hosts, h1 to h3, without faults, on which nothing runs."""
    yield lasting_network
    lasting_network.end_faults()
    lasting_network.kill_all()


@pytest.fixture(scope="session")
def lasting_sshd(hosts_are_possible: None) -> Iterator[tuple[Network, Sshd]]:
    """Return a network of three hosts with an sshd on each; tests take `ssh_network` and `sshd`."""
    reason = why_no_sshd()
    if reason:
        pytest.skip(reason)
    with Network(3) as network:
        yield network, Sshd(network)


@pytest.fixture
def ssh_network(lasting_sshd: tuple[Network, Sshd]) -> Iterator[Network]:
    """Return a network of three hosts, h1 to h3, on which only an sshd runs."""
    network, sshd = lasting_sshd
    yield network
    network.end_faults()
    network.kill_all(keep=[sshd.daemon(host) for host in network.hosts])
    sshd.restore()


@pytest.fixture
def sshd(lasting_sshd: tuple[Network, Sshd], ssh_network: Network) -> Sshd:
    """Return what changes the keys of the user on the hosts of `ssh_network`."""
    return lasting_sshd[1]


@pytest.fixture(scope="session")
def lasting_slurm(
    hosts_are_possible: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Network, Slurm]]:
    """Return a network of three hosts with a Slurm; tests take `slurm_network` and `slurm`."""
    reason = why_no_slurm()
    if reason:
        pytest.skip(reason)
    shared = tmp_path_factory.mktemp("slurm")
    with Network(3, shared=[shared]) as network:
        slurm = Slurm(network, shared)
        yield network, slurm
        slurm.down()


@pytest.fixture
def slurm_network(lasting_slurm: tuple[Network, Slurm]) -> Iterator[Network]:
    """Return a network of three hosts, h1 to h3, which are the idle nodes of a Slurm."""
    network, slurm = lasting_slurm
    yield network
    network.end_faults()
    slurm.restore()
    network.kill_all(keep=[pid for host in network.hosts for pid in slurm.daemons(host)])


@pytest.fixture
def slurm(lasting_slurm: tuple[Network, Slurm], slurm_network: Network) -> Slurm:
    """Return the Slurm on `slurm_network`."""
    return lasting_slurm[1]


@pytest.fixture(scope="session")
def lasting_ray(
    hosts_are_possible: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Network, RayCluster]]:
    """Return a network of three hosts with a Ray cluster; tests take `ray_network` and `ray_on_hosts`."""
    reason = why_no_ray()
    if reason:
        pytest.skip(reason)
    disk = tmp_path_factory.mktemp("ray")
    with Network(3, shared=[disk]) as network:
        yield network, RayCluster(network, disk)


@pytest.fixture
def ray_network(lasting_ray: tuple[Network, RayCluster]) -> Iterator[Network]:
    """Return a network of three hosts, h1 to h3, which are the nodes of a Ray cluster."""
    network, cluster = lasting_ray
    yield network
    network.end_faults()
    cluster.restore()


@pytest.fixture
def ray_on_hosts(lasting_ray: tuple[Network, RayCluster], ray_network: Network) -> RayCluster:
    """Return the Ray cluster on `ray_network`."""
    return lasting_ray[1]


@pytest.fixture(scope="session")
def lasting_kubernetes(
    hosts_are_possible: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Kubernetes, Path]]:
    """Return a Kubernetes, and a folder that its hosts share; tests take `kubernetes`."""
    reason = why_no_kubernetes()
    if reason:
        pytest.skip(reason)
    shared = tmp_path_factory.mktemp("kubernetes")
    with Network(4, shared=[shared]) as network:
        kubernetes = Kubernetes(network)
        yield kubernetes, shared
        kubernetes.down()


@pytest.fixture
def kubernetes(lasting_kubernetes: tuple[Kubernetes, Path]) -> Iterator[Kubernetes]:
    """Return a Kubernetes with its control plane on h1, and with the nodes h2, h3 and h4."""
    kubernetes, _ = lasting_kubernetes
    yield kubernetes
    kubernetes.network.end_faults()
    kubernetes.restore()
