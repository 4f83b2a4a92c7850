"""Where the addresses of a run are: for processes of each node, and as the launching process sees them.

Two workers on one node talk by unix socket, two on different ones by TLS.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from launchpad.courier import keyring
from launchpad.launch.backends.launch_origin import RunSecrets


class LocalAddressView:
    """Follows the addresses. This process has the run's keys for where they are now, and nowhere else.

    Attributes:
        places: Address → endpoint; empty while nobody is there.
    """

    def __init__(self, keys: RunSecrets) -> None:
        self._keys = keys
        self.places: dict[str, str] = {}

    def follow(self, seen: Mapping[str, str]) -> None:
        """These are somewhere else now."""
        for address, endpoint in seen.items():
            if before := self.places.get(address):
                keyring.remove(before)
            if endpoint.startswith(("unix:", "tcp:")):
                keyring.add(endpoint, self._keys.token, self._keys.credentials)
            self.places[address] = endpoint

    def close(self) -> None:
        """Gives the keys back."""
        for endpoint in self.places.values():
            keyring.remove(endpoint)


@dataclass(frozen=True)
class _Place:
    node: str
    near: str
    far: str


class AddressTable:
    """The table: address name → place."""

    def __init__(self) -> None:
        self._table: dict[str, _Place] = {}

    def bind(self, address: str, node: str, endpoints: Collection[str]) -> None:
        """A server on `node` has bound: its endpoint for that node comes first, that for others last."""
        near, *_, far = (*endpoints, *endpoints)
        self._table[address] = _Place(node, near, far)

    def withdraw(self, worker: str) -> list[str]:
        """A worker has ended: the addresses of its servers, which nobody finds any more."""
        lost = [address for address in self._table if address.partition("/")[0] == worker]
        for address in lost:
            del self._table[address]
        return lost

    def seen_from(self, node: str, addresses: Collection[str] | None = None) -> dict[str, str]:
        """Address → endpoint for those on `node`; empty for one that is nowhere. All of them if None."""
        wanted = self._table if addresses is None else addresses
        return {address: self._endpoint(address, node) for address in wanted}

    def _endpoint(self, address: str, node: str) -> str:
        place = self._table.get(address)
        if place is None:
            return ""
        return place.near if place.node == node else place.far
