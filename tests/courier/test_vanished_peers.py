"""F41, F42: a server on another host, which vanishes and comes back; over TCP and TLS."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from launchpad import courier
from tests.courier.conftest import begin_source
from tests.helpers import network_namespace
from tests.helpers.network_namespace import FarHost
from tests.waiting import until

pytestmark = pytest.mark.slow

SERVER = """{begin}
import threading
hanging = []
server = courier.Server("far", address=sys.stdin.readline().strip())
server.bind("echo", lambda value: value)
server.bind("hang", lambda: hanging.append(1) or threading.Event().wait())
server.bind("n_hanging", lambda: len(hanging))
server.start()
print(server.address, flush=True)
server.join()
"""
CLIENT = """{begin}
print(sys.stdin.readline().strip(), flush=True)
client = courier.Client(sys.stdin.readline().strip())
print(client.echo(1), client.futures.echo(2).result(), flush=True)
sys.stdin.readline()
"""


@pytest.fixture(params=["tcp+plaintext", "tls"])
def scheme(request: pytest.FixtureRequest) -> str:
    if request.param == "tls":
        request.getfixturevalue("tls_address")
        return "tcp"
    return str(request.param)


@pytest.fixture
def far_host(scheme: str) -> Iterator[FarHost]:
    with network_namespace.start(SERVER.format(begin=begin_source())) as host:
        yield host


def outcome_of(call: Any) -> tuple[type, float]:
    """What it raised, and when."""
    with pytest.raises(courier.CourierError) as caught:
        call()
    return type(caught.value), time.monotonic()


@pytest.mark.timing
def test_f41_calls_to_a_host_that_vanishes_end_as_unknown(far_host, scheme, connect) -> None:
    client = connect(far_host.connect_cable(scheme), name="far")
    futures = [client.futures.hang() for _ in range(100)]
    outcomes: list[tuple[type, float]] = []
    waiting = threading.Thread(target=lambda: outcomes.append(outcome_of(client.hang)))
    waiting.start()
    until(lambda: client.n_hanging() >= 101)

    far_host.vanish()
    cut_at = time.monotonic()
    calling = threading.Thread(target=lambda: outcomes.append(outcome_of(lambda: client.echo(1))))
    calling.start()
    kinds = {type(future.exception(20)) for future in futures}
    outcomes.append((kinds.pop(), time.monotonic()))
    waiting.join(20)
    calling.join(20)

    assert kinds == set()
    assert [kind for kind, _ in outcomes] == [courier.OutcomeUnknown] * 3
    # 3 s, and what a busy machine takes to tell.
    assert max(at - cut_at for _, at in outcomes) < 3.5


@pytest.mark.timing
@pytest.mark.parametrize("scheme", ["tls"], indirect=True)
def test_f42_when_the_network_heals_calls_go_on(far_host, scheme, connect) -> None:
    client = connect(far_host.connect_cable(scheme), name="far")
    assert [client.echo(1), client.futures.echo(2).result(10)] == [1, 2]

    far_host.vanish()
    lost = client.futures.echo(3)
    errors = [outcome_of(lambda: client.echo(4))[0], type(lost.exception(20))]
    answers: list[float] = []
    waiting = threading.Thread(target=lambda: answers.append(client.echo(time.monotonic())))
    waiting.start()
    future = client.futures.echo("waited, too")
    threading.Event().wait(2.0)  # no order is awaited: this is how long the network is down
    far_host.come_back()
    healed_at = time.monotonic()
    waiting.join(20)
    took_s = time.monotonic() - healed_at

    assert errors == [courier.OutcomeUnknown] * 2
    assert len(answers) == 1
    assert future.result(20) == "waited, too"
    assert took_s < 2.5  # 1 s, the pace at which Linux asks again, and what a busy machine takes


def test_f41_a_server_forgets_clients_on_a_host_that_vanishes(scheme, serve) -> None:
    with network_namespace.start(CLIENT.format(begin=begin_source())) as far_host:
        far_host.connect_cable(scheme)
        server = serve(f"{scheme}:{far_host.near_ip}:0", echo=lambda value: value)
        assert far_host.ask(server.address) == "1 2"
        assert server.stats().connections == 2

        far_host.vanish()

        until(
            lambda: not server.stats().connections
        )  # Linux itself would repeat for a quarter of an hour
