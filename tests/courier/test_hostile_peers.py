"""F40: clients that do not belong to a run are refused before anything of theirs is unpickled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.hostile import canary, strangers
from benchmarks.hostile.canary import Canary
from benchmarks.hostile.target import TRANSPORTS, Target, new_target, start
from launchpad.courier import keyring

TRIES = 3  # of each kind
ALL_KINDS = [(transport, kind) for transport in TRANSPORTS for kind in strangers.KINDS[transport]]


@pytest.fixture
def target(transport: str, short_directory: Path) -> Iterator[Target]:
    server, started = start(new_target(transport, str(short_directory)))
    yield started
    server.stop()
    keyring.remove("tcp:")


@pytest.mark.parametrize(("transport", "kind"), ALL_KINDS)
def test_f40_a_stranger_is_refused_and_nothing_of_it_is_unpickled(target, kind: str) -> None:
    before = canary.n_touched()

    outcomes = {strangers.try_once(target, kind) for _ in range(TRIES)}

    assert strangers.ACCEPTED not in outcomes
    assert canary.n_touched() == before
    with target.client() as client:
        assert client.echo(1) == 1


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_canary_of_a_client_of_the_run_is_unpickled(target) -> None:
    before = canary.n_touched()

    with target.client() as client:
        client.echo(Canary())

    assert canary.n_touched() == before + 1
