"""A replay server in this process, and clients of it over a socket."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from launchpad import courier
from launchpad.replay import ReplayClient, Table
from launchpad.replay.server import ReplayServer

Serve = Callable[..., ReplayClient]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serves tables, or a ReplayServer that is given; returns a client."""
    with contextlib.ExitStack() as stack:

        def start(*tables: Table, served: ReplayServer | None = None) -> ReplayClient:
            server = courier.Server("replay")
            server.bind_object(served or ReplayServer(tables))
            server.Start()
            stack.callback(server.stop)
            client = courier.Client(server.address)
            stack.callback(courier.close, client)
            return ReplayClient(client)

        yield start
