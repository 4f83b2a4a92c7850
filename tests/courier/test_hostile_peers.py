"""Clients that do not belong to a run are refused before anything of theirs is unpickled.

A few hundred tries here; benchmarks/strangers.py makes ten thousand.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.hostile import canary, strangers
from benchmarks.hostile.canary import Canary
from benchmarks.hostile.target import TRANSPORTS, Target, new_target, start
from launchpad import courier
from launchpad.courier import keyring
from launchpad.courier.security import certificates

TRIES = 20  # of each kind
ALL_KINDS = [(transport, kind) for transport in TRANSPORTS for kind in strangers.KINDS[transport]]


@pytest.fixture
def transport() -> str:
    return "tls"


@pytest.fixture
def target(transport: str, short_directory: Path) -> Iterator[Target]:
    server, started = start(new_target(transport, str(short_directory)))
    yield started
    server.stop()
    keyring.remove("tcp:")


@pytest.mark.parametrize(("transport", "kind"), ALL_KINDS)
def test_a_stranger_is_refused_and_nothing_of_it_is_unpickled(target: Target, kind: str) -> None:
    before = canary.n_touched()

    outcomes = {strangers.try_once(target, kind) for _ in range(TRIES)}

    assert strangers.ACCEPTED not in outcomes
    assert canary.n_touched() == before
    with target.client() as client:
        assert client.echo(1) == 1


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_canary_of_a_client_of_the_run_is_unpickled(target: Target) -> None:
    before = canary.n_touched()

    with target.client() as client:
        client.echo(Canary())

    assert canary.n_touched() == before + 1


def test_a_client_unpickles_nothing_of_a_server_of_another_run_and_shows_it_no_token(
    target: Target,
) -> None:
    before = canary.n_touched()
    token = b"of another run"
    keyring.add("tcp:", token, certificates.make_credentials())
    client = courier.Client(target.address)

    for _ in range(TRIES):
        with pytest.raises(courier.Refused, match="a certificate of another run"):
            client.echo(Canary())
        with pytest.raises(courier.Refused, match="a certificate of another run"):
            client.futures.echo(Canary()).result(10)

    courier.close(client)
    assert canary.n_touched() == before
