"""Networks of hosts for tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hosts import requirements
from tests.hosts.network import Network


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
    addresses = {host: host.address for host in lasting_network.hosts}
    yield lasting_network
    lasting_network.end_faults()
    for host, address in addresses.items():
        if host.address != address:
            lasting_network.readdress(host, address)
        host.kill_all()
