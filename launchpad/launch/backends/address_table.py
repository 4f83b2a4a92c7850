"""The addresses of a run, as processes of each node see them, and as the launching process does.

Two workers on the same node talk over a unix socket, two on different nodes over TLS.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from launchpad.courier import keyring
from launchpad.launch.backends.launcher_info import RunSecrets


class LocalAddressView:
    """The addresses as this process sees them. It keeps the run's keys only for their present endpoints.

    Attributes:
        places: Address → endpoint; empty while there is no server.
    """

    def __init__(self, keys: RunSecrets) -> None:
        self._keys = keys
        self.places: dict[str, str] = {}

    def follow(self, endpoints: Mapping[str, str]) -> None:
        """Take the new endpoints of some addresses, and move the keys to them."""
        for address, endpoint in endpoints.items():
            before = self.places.get(address)
            if before:
                keyring.remove(before)
            if endpoint.startswith(("unix:", "tcp:")):
                keyring.add(endpoint, self._keys.token, self._keys.credentials)
            self.places[address] = endpoint

    def close(self) -> None:
        """Remove the keys from this process's keyring."""
        for endpoint in self.places.values():
            keyring.remove(endpoint)


@dataclass(frozen=True)
class _Place:
    node: str
    near: str
    far: str


class AddressTable:
    """The table of all addresses: address name → place."""

    def __init__(self) -> None:
        self._table: dict[str, _Place] = {}

    def bind(self, address: str, node: str, endpoints: Collection[str]) -> None:
        """Record that a server on `node` has bound.

        The first of its endpoints is for processes on that node, the last for those on others.
        """
        in_order = tuple(endpoints)
        self._table[address] = _Place(node, near=in_order[0], far=in_order[-1])

    def withdraw(self, worker: str) -> list[str]:
        """Remove the addresses of a worker that has ended, and return them."""
        lost = [address for address in self._table if address.partition("/")[0] == worker]
        for address in lost:
            del self._table[address]
        return lost

    def seen_from(self, node: str, addresses: Collection[str] | None = None) -> dict[str, str]:
        """Return address → endpoint for processes on `node`, empty where there is no server.

        Args:
            addresses: The addresses to look up; None means all.
        """
        if addresses is None:
            addresses = self._table
        endpoints = dict.fromkeys(addresses, "")
        for address in addresses:
            place = self._table.get(address)
            if place:
                endpoints[address] = place.near if place.node == node else place.far
        return endpoints
