"""F41, F42: a server on another host, which vanishes and comes back; over TCP and TLS."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import pytest

from launchpad import courier
from tests.courier.conftest import begin_source, in_background
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


@pytest.mark.timing
def test_f41_calls_to_a_host_that_vanishes_end_as_unknown(far_host, scheme, connect) -> None:
    address = far_host.connect_cable(scheme)
    client, sender = connect(address), connect(address, wait_for_ready=False)
    assert sender.echo(1) == 1
    calls = [*(client.futures.hang() for _ in range(100)), in_background(client.hang)]
    until(lambda: client.n_hanging() >= 101)

    far_host.vanish()
    cut_at = time.monotonic()
    sending = in_background(sender.echo, bytes(64 << 20))
    calls.append(in_background(client.echo, 1))
    errors = [call.exception(20) for call in calls]
    until(lambda: client.stats().connections == sender.stats().connections == 0)
    took_s = time.monotonic() - cut_at

    assert {type(error) for error in errors} == {courier.OutcomeUnknown}
    assert took_s < 3.5  # 3 s, and what a busy machine takes to tell
    assert isinstance(sending.exception(20), courier.NotSent)  # in full


@pytest.mark.timing
@pytest.mark.parametrize("scheme", ["tls"], indirect=True)
def test_f42_when_the_network_heals_calls_go_on(far_host, scheme, connect) -> None:
    client = connect(far_host.connect_cable(scheme), name="far")
    assert [client.echo(1), client.futures.echo(2).result(10)] == [1, 2]

    far_host.vanish()
    lost = client.futures.echo(3)
    errors = [in_background(client.echo, 4).exception(20), lost.exception(20)]
    waiting = in_background(client.echo, "waited")
    future = client.futures.echo("waited, too")
    threading.Event().wait(2.0)  # no order is awaited: this is how long the network is down
    far_host.come_back()
    healed_at = time.monotonic()
    assert waiting.result(20) == "waited"
    took_s = time.monotonic() - healed_at

    assert [type(error) for error in errors] == [courier.OutcomeUnknown] * 2
    assert future.result(20) == "waited, too"
    assert took_s < 2.5  # 1 s, the pace at which Linux asks again, and what a busy machine takes


@pytest.mark.parametrize("scheme", ["tls"], indirect=True)
def test_a_server_that_does_not_read_is_waited_for_however_long(far_host, scheme, connect) -> None:
    client = connect(far_host.connect_cable(scheme), wait_for_ready=False)
    n_bytes = 32 << 20  # more than sockets have room for
    assert client.echo(1) == 1

    far_host.process.send_signal(signal.SIGSTOP)  # as if a method held the GIL: its kernel answers
    call = in_background(client.echo, bytes(n_bytes))
    with pytest.raises(TimeoutError):
        call.result(4)  # long enough to be taken for one that has vanished
    far_host.process.send_signal(signal.SIGCONT)

    assert len(call.result(20)) == n_bytes


def test_f41_a_server_forgets_clients_on_a_host_that_vanishes(scheme, serve) -> None:
    with network_namespace.start(CLIENT.format(begin=begin_source())) as far_host:
        far_host.connect_cable(scheme)
        server = serve(f"{scheme}:{far_host.near_ip}:0", echo=lambda value: value)
        assert far_host.ask(server.address) == "1 2"
        assert server.stats().connections == 2

        far_host.vanish()

        # Linux itself would repeat for a quarter of an hour.
        until(lambda: not server.stats().connections)
