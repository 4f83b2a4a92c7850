"""Deadlines: on time at the caller, and known to the server."""

from __future__ import annotations

import math
import time

import pytest

from launchpad import courier
from launchpad.courier.call_stack import CallContext, current_call
from launchpad.courier.client.pending_calls import DeadlineHeap


@pytest.mark.every_transport
@pytest.mark.timing
def test_a_call_that_takes_too_long_raises_on_time(client_of, gate) -> None:
    client = client_of(name="slow", hang=gate.wait, echo=lambda value: value, call_timeout=0.15)
    client.echo(1)
    began = time.monotonic()

    with pytest.raises(
        courier.DeadlineExceeded, match=r"'hang' of slow .* within 0.15 s"
    ) as caught:
        client.hang()

    assert 0.14 < time.monotonic() - began < 0.6
    assert isinstance(caught.value, TimeoutError)
    assert (caught.value.server, caught.value.method) == ("slow", "hang")


@pytest.mark.every_transport
def test_the_late_answer_is_not_taken_for_the_next_one(client_of, gate) -> None:
    client = client_of(hang=lambda: gate.wait() and "late", echo=lambda value: value)
    with pytest.raises(courier.DeadlineExceeded):
        client.with_options(timeout_s=0.2).hang()

    gate.set()

    assert [client.echo(i) for i in range(20)] == list(range(20))


def test_a_call_that_is_late_already_is_not_begun(serve, connect, unix_address, gate) -> None:
    began: list[str] = []
    server = serve(unix_address, size=1, hang=gate.wait, late=lambda: began.append("late"))
    client = connect(unix_address, call_timeout=0.05)
    pool = server._core.pool  # whose growth is switched off, so that the call has to wait
    pool._may_grow = lambda: False
    busy = connect(unix_address).futures.hang()
    assert gate.begun.wait(10)
    with pytest.raises(courier.DeadlineExceeded):
        client.late()

    gate.set()
    busy.result(10)
    connect(unix_address).hang()

    assert began == []


@pytest.mark.timing
def test_many_calls_each_have_the_whole_time(client_of) -> None:
    client = client_of(nap=time.sleep, call_timeout=0.8)

    for _ in range(4):
        client.nap(0.25)


@pytest.mark.every_transport
def test_a_call_made_after_the_inherited_deadline_is_not_sent(serve, connect, address) -> None:
    ran: list[int] = []
    serve(address, note=ran.append)
    client = connect(address)
    client.note(1)
    token = current_call.set(CallContext(time.monotonic() - 1.0))
    try:
        with pytest.raises(courier.DeadlineExceeded, match="the call that it was made for"):
            client.note(2)
        with pytest.raises(courier.DeadlineExceeded, match="the call that it was made for"):
            client.futures.note(3).result(10)
        with pytest.raises(courier.DeadlineExceeded):
            connect(address, call_timeout=60).note(4)
    finally:
        current_call.reset(token)

    assert ran == [1]


def test_deadlines_of_calls_that_are_done_are_not_kept() -> None:
    open_calls: set[int] = set()
    deadlines = DeadlineHeap(open_calls)

    for call in range(20_000):
        open_calls.add(call)
        deadlines.add(float(call), call)
        open_calls.discard(call - 10)

    assert len(deadlines._heap) < 2000
    assert set(deadlines.pop_expired(1e9)) >= open_calls


@pytest.mark.parametrize("timeout_s", [math.inf, 1e12])
def test_sound_32_a_timeout_may_be_infinite(serve, connect, address, timeout_s) -> None:
    serve(address, echo=lambda value: value, rows=lambda: iter([1]), add_up=sum)

    for client in (
        connect(address, call_timeout=timeout_s),
        connect(address, call_timeout=60).with_options(timeout_s=timeout_s),
    ):
        assert client.echo(1) == 1
        assert client.futures.echo(2).result(60) == 2
        assert list(client.rows()) == [1]
        assert client.add_up(iter([1, 2])) == 3
