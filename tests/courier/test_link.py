"""Links: messages of a client arrive later, in their order, however they were sent."""

from __future__ import annotations

import asyncio
import itertools
import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from launchpad import courier
from launchpad.courier.transport import link as links
from launchpad.courier.transport.link import Bandwidth, Delay, Link
from tests.courier.conftest import awaited
from tests.waiting import until

SHORT_S = 0.05


@pytest.fixture
def linked(serve, connect, address) -> Callable[..., Any]:
    """Starts a server with these methods; gives a client that reaches it through this link."""

    def start(*rules: Delay | Bandwidth, timeout_s: float | None = None, **methods: Any) -> Any:
        serve(address, **methods)
        return connect(address, link=Link(*rules), call_timeout=timeout_s)

    return start


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that links see, set by the test."""
    now = [100.0]
    monkeypatch.setattr(links.time, "monotonic", lambda: now[0])
    return now


def test_a_message_is_through_when_those_before_it_are_and_its_bytes_and_the_delay(clock) -> None:
    link = Link(Delay(2.0), Bandwidth(100.0), Bandwidth(400.0), Delay(1.0))

    assert link.arrival(200) == 100 + 2 + 3  # the narrower of both, both delays
    assert link.arrival(100) == 100 + 2 + 1 + 3  # behind the first
    assert link.arrival(50, is_result=True) == 100.5  # the other way is free, and has no delay
    clock[0] = 200.0
    assert link.arrival(0) == 203.0


def test_a_link_that_is_pickled_holds_up_other_messages_by_the_same_rules(clock) -> None:
    link = Link(Delay(1.0), Bandwidth(10.0))
    link.arrival(1000)

    assert pickle.loads(pickle.dumps(link)).arrival(0) == 101.0


@pytest.mark.parametrize("wrong", [0, -1, float("inf"), float("nan"), True, "fast"])
def test_a_rule_that_means_nothing_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="Delay takes seconds, more than 0"):
        Delay(wrong)
    with pytest.raises(ValueError, match="Bandwidth takes bytes a second, more than 0"):
        Bandwidth(wrong)


@pytest.mark.parametrize("rule", [Delay(SHORT_S), Bandwidth(50_000 / SHORT_S)])
def test_calls_futures_and_coroutines_take_as_long_as_the_link_says(linked, rule) -> None:
    client = linked(rule, zeros=lambda n: np.zeros(n, np.uint8), length=len)
    large = bytes(50_000)

    for call in (
        lambda: client.length(large),
        lambda: client.zeros(50_000).nbytes,
        lambda: client.futures.length(large).result(),
        lambda: asyncio.run(awaited(client.aio.length(large))),
    ):
        began = time.monotonic()
        assert call() == 50_000
        assert time.monotonic() - began >= SHORT_S
    stats = client.stats().methods["length"]
    assert (stats.calls, stats.errors) == (3, 0)
    assert stats.total_s >= 3 * SHORT_S


@pytest.mark.parametrize("rule", [Delay(3600.0), Bandwidth(1.0)])  # there, and back
@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.zeros(10_000),
        lambda client: client.futures.zeros(10_000).result(),
        lambda client: asyncio.run(awaited(client.aio.zeros(10_000))),
    ],
    ids=["call", "future", "coroutine"],
)
def test_a_call_has_its_timeout_for_the_link_too(linked, rule, call) -> None:
    client = linked(rule, timeout_s=0.2, zeros=bytes)

    with pytest.raises(courier.DeadlineExceeded, match=r"'zeros' of .* within 0\.2 s"):
        call(client)

    assert client.stats().methods["zeros"].errors == 1


def test_futures_arrive_in_order_with_the_values_they_were_made_with(linked) -> None:
    arrived: list[int] = []
    client = linked(Delay(0.01), Bandwidth(50e6), first=lambda a: arrived.append(int(a[0])))
    array = np.zeros(5_000)

    # One at a time: the server takes those that arrive together side by side, and one may overtake another.
    for number in range(5):
        array[0] = number
        future = client.futures.first(array)
        array[0] = -1
        future.result(20)

    assert arrived == list(range(5))


def test_calls_that_are_on_the_link_together_wait_together(linked) -> None:
    client = linked(Delay(0.2), echo=lambda value: value)
    client.futures.echo(0).result(20)

    began = time.monotonic()
    futures = [client.futures.echo([number]) for number in range(20)]

    assert [future.result(20) for future in futures] == [[number] for number in range(20)]
    assert time.monotonic() - began < 20 * 0.2


def test_errors_and_cancelled_futures_come_through(linked) -> None:
    client = linked(Delay(SHORT_S), fail=lambda: 1 / 0, mark=threading.Event().set)

    with pytest.raises(ZeroDivisionError):
        client.fail()
    with pytest.raises(ZeroDivisionError):
        client.futures.fail().result()
    future = client.futures.mark()
    assert future.cancel()

    assert future.cancelled()
    assert client.stats().methods["fail"].errors == 2


def test_streams_pass_through_the_link(linked) -> None:
    client = linked(Delay(0.001), count=lambda n: iter(range(n)), total=sum)

    assert list(client.count(5)) == [0, 1, 2, 3, 4]
    assert client.total(itertools.islice(itertools.count(), 5)) == 10


def test_a_client_that_is_closed_fails_what_is_on_its_way(linked) -> None:
    arrived = threading.Event()
    client = linked(Delay(30.0), mark=arrived.set)
    future = client.futures.mark()

    courier.close(client)

    assert isinstance(future.exception(20), courier.CourierError)
    assert not arrived.is_set()


def test_a_call_on_the_link_ends_with_its_server(serve, connect, address) -> None:
    server = serve(address, echo=lambda value: value)
    client = connect(address, link=Link(Delay(30.0)), wait_for_ready=False)
    future = client.futures.echo(1)
    until(lambda: client.stats().connections == 1)

    server.stop(0)

    assert isinstance(future.exception(20), courier.CourierError)


def test_a_link_to_a_grpc_address_is_refused_when_the_client_is_made() -> None:
    with pytest.raises(ValueError, match="Delay and Bandwidth work at unix:, tcp: and inproc:"):
        courier.Client("grpc+plaintext:localhost:1", link=Link(Delay(1.0)))
