"""What a process has counted: nothing is missing, however many clients have come and gone."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator

import pytest

from launchpad import courier
from launchpad.courier import caller
from launchpad.courier.caller import Peer
from launchpad.courier.telemetry import registry
from tests.courier.conftest import exit_code_of_child, in_background

ME = Peer("me-0", 1, os.urandom(16))


@pytest.fixture(autouse=True)
def as_a_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This thread is the worker me-0's, others are not."""
    thread = threading.get_ident()
    monkeypatch.setattr(
        caller, "_provider", lambda: ME if threading.get_ident() == thread else None
    )
    yield
    registry.forget(ME)


def calls() -> tuple[dict[registry.Place, int], dict[registry.Place, int]]:
    made, served = registry.counted(ME)
    return {p: s.calls for p, s in made.items()}, {p: s.calls for p, s in served.items()}


@pytest.mark.every_transport
def test_calls_of_clients_and_servers_that_are_gone_are_counted(address, serve, connect) -> None:
    for _ in range(3):
        server = serve(address, name="server-0", work=lambda: None, other=lambda: None)
        for _ in range(10):
            with courier.Client(address) as client:
                client.work()
        server.stop()
    del server, client
    gc.collect()
    serve(address, name="server-0", work=lambda: None, other=lambda: None)
    left = connect(address)
    left.other()
    left.work()

    expected = {("me-0", "server-0", "work"): 31, ("me-0", "server-0", "other"): 1}
    assert calls() == (expected, expected)
    assert registry.counted(ME).made["me-0", "server-0", "work"].bytes_in > 0


def test_counts_belong_to_whose_thread_has_made_the_client(unix_address, serve) -> None:
    serve(unix_address, name="server-0", work=lambda: None)

    def call() -> None:
        with courier.Client(unix_address) as client:
            client.work()

    in_background(call).result(20)
    call()

    made, served = calls()
    assert made == {("me-0", "server-0", "work"): 1}
    assert served == {
        ("me-0", "server-0", "work"): 1,
        (f"pid {os.getpid()}", "server-0", "work"): 1,
    }


def test_a_forked_process_has_counted_nothing(unix_address, serve) -> None:
    serve(unix_address, name="server-0", work=lambda: None)
    with courier.Client(unix_address) as client:
        client.work()

    assert exit_code_of_child(lambda: registry.counted(ME) != ({}, {})) == 0
    assert calls()[0] == {("me-0", "server-0", "work"): 1}
