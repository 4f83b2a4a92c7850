"""A store by which ranks find each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launchpad.collectives.store import StoreServer
from launchpad.courier import Client, Server


class Rendezvous(StoreServer):
    """What a rendezvous does with it."""

    def end(self, generation: int) -> None:
        self._end_store(generation)

    def n_kept(self) -> tuple[int, int]:
        """How many generations have keys, and how many calls wait."""
        return len(self._generations), len(self._store_gets)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Any]:
    server = Server("rendezvous", address=f"unix:{tmp_path}/store.sock")
    server.bind_object(Rendezvous())
    server.Start()
    with Client(server.address) as client:
        yield client
    server.stop()
