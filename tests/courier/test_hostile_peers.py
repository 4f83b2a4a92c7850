"""Who does not belong to a run is refused before anything of theirs is unpickled.

A few hundred visits here; benchmarks/strangers.py makes ten thousand.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.hostile import canary, strangers
from benchmarks.hostile.canary import Canary
from benchmarks.hostile.target import CARRIERS, Target, new_target, start
from launchpad import courier
from launchpad.courier import keyring
from launchpad.courier.security import certificates

VISITS = 20  # of each kind
EVERYBODY = [(carrier, kind) for carrier in CARRIERS for kind in strangers.KINDS[carrier]]


@pytest.fixture
def carrier() -> str:
    return "tls"


@pytest.fixture
def target(carrier: str, short_directory: Path) -> Iterator[Target]:
    server, started = start(new_target(carrier, str(short_directory)))
    yield started
    server.stop()
    keyring.remove("tcp:")


@pytest.mark.parametrize(("carrier", "kind"), EVERYBODY)
def test_a_stranger_is_refused_and_nothing_of_it_is_unpickled(target: Target, kind: str) -> None:
    before = canary.n_touched()

    outcomes = {strangers.visit(target, kind) for _ in range(VISITS)}

    assert strangers.LET_IN not in outcomes
    assert canary.n_touched() == before
    with target.client() as client:
        assert client.echo(1) == 1


@pytest.mark.parametrize("carrier", CARRIERS)
def test_the_canary_of_one_who_belongs_is_unpickled(target: Target) -> None:
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

    for _ in range(VISITS):
        with pytest.raises(courier.Refused, match="a certificate of another run"):
            client.echo(Canary())
        with pytest.raises(courier.Refused, match="a certificate of another run"):
            client.futures.echo(Canary()).result(10)

    courier.close(client)
    assert canary.n_touched() == before
