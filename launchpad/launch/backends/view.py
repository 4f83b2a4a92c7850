"""View: where the addresses of a run are, as the launching process sees them."""

from __future__ import annotations

from collections.abc import Mapping

from launchpad.courier import keyring
from launchpad.launch.backends.origin import Keys


class View:
    """Follows the addresses. This process has the run's keys for where they are now, and nowhere else.

    Attributes:
      places: Address → endpoint; empty while nobody is there.
    """

    def __init__(self, keys: Keys) -> None:
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
