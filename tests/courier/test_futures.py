"""Futures: any number of calls in flight on one connection."""

from __future__ import annotations

import concurrent.futures
import queue
import threading
from functools import partial

import numpy as np
import pytest

from launchpad import courier
from launchpad.courier.codec import pickling
from launchpad.courier.protocol import framing, handshake
from tests.helpers import raw_sockets
from tests.waiting import until


@pytest.mark.every_transport
def test_calls_that_wait_for_each_other_in_any_order_complete(client_of) -> None:
    gates = [threading.Event() for _ in range(30)]

    def wait_for_next(i: int) -> int:
        if i + 1 < len(gates):
            assert gates[i + 1].wait(20)
        gates[i].set()
        return i

    client = client_of(size=1, m=wait_for_next)

    futures = [client.futures.m(i) for i in range(len(gates))]

    assert [future.result(20) for future in futures] == list(range(len(gates)))


@pytest.mark.every_transport
def test_large_and_small_calls_mix(client_of) -> None:
    client = client_of(total=lambda a: float(a.sum()), echo=lambda value: value)
    array = np.ones(500_000)

    large = [client.futures.total(array * i) for i in range(10)]
    small = [client.futures.echo(i) for i in range(2000)]

    assert [future.result(20) for future in large] == [500_000.0 * i for i in range(10)]
    assert [future.result(20) for future in small] == list(range(2000))


@pytest.mark.every_transport
def test_arguments_may_be_changed_as_soon_as_the_future_is_there(serve, connect, address) -> None:
    array = np.zeros(100_000)

    future = connect(address).futures.total(array)
    array += 1
    serve(address, total=lambda a: float(a.sum()))

    assert future.result(10) == 0.0


@pytest.mark.every_transport
def test_callbacks_that_answer_floods_with_floods_do_not_deadlock(client_of) -> None:
    client = client_of(echo=lambda value: value)
    payload = b"x" * 3000
    finished = threading.Semaphore(0)

    def call_again(_: object) -> None:
        client.futures.echo(payload).add_done_callback(lambda _: finished.release())

    for _ in range(1000):
        client.futures.echo(payload).add_done_callback(call_again)

    assert all(finished.acquire(timeout=20) for _ in range(1000))


@pytest.mark.every_transport
def test_a_call_cancelled_before_it_is_sent_never_runs(serve, connect, address) -> None:
    ran: list[str] = []
    client = connect(address)

    cancelled = client.futures.m("cancelled")
    kept = client.futures.m("kept")
    was_cancelled = cancelled.cancel()
    serve(address, m=ran.append)
    kept.result(10)

    assert was_cancelled
    assert cancelled.cancelled()
    assert ran == ["kept"]
    with pytest.raises(concurrent.futures.CancelledError):
        cancelled.result(1)


@pytest.mark.parametrize("flags", [handshake.OVERLAP, handshake.SHARE])
def test_a_call_that_is_cancelled_in_time_does_not_run(serve, unix_address, flags) -> None:
    ran: list[int] = []
    serve(unix_address, m=ran.append)
    calls = [
        framing.encode_small(framing.CALL, i, b"m", pickling.encode(((i,), {}))[0])
        for i in (1, 2, 3)
    ]
    cancel = framing.encode_small(framing.CANCEL, 2, b"", b"")

    with raw_sockets.greeted(unix_address, flags=flags) as sock:
        sock.sendall(b"".join([*calls, cancel]))
        frames, decoder = [], framing.FrameDecoder()
        while len(frames) < 2:
            frames += decoder.received(sock.recv_into(decoder.buffer))

    assert [frame[1] for frame in frames] == [1, 3]
    assert ran == [1, 3]


@pytest.mark.every_transport
def test_closing_the_client_ends_futures_in_flight(client_of, gate) -> None:
    client = client_of(hang=gate.wait)
    future = client.futures.hang()
    gate.begun.wait(10)

    courier.close(client)

    assert isinstance(future.exception(10), courier.OutcomeUnknown)


def test_an_idle_connection_is_given_up_and_opened_again(client_of, monkeypatch) -> None:
    monkeypatch.setattr("launchpad.courier.client.reader._IDLE_S", 0.05)
    client = client_of(echo=lambda value: value)

    client.futures.echo(1).result(10)
    threads = [t for t in threading.enumerate() if t.name.startswith("courier-futures")]
    until(lambda: not any(thread.is_alive() for thread in threads))

    assert client.futures.echo(2).result(10) == 2


@pytest.mark.every_transport
def test_sound_13_a_callback_may_wait_for_another_callback(client_of, gate) -> None:
    def echo(value: int) -> int:
        gate.wait(60)  # a future that is done runs its callbacks where they are added
        return value

    client = client_of(echo=echo)
    n = 20  # more than any thread may be kept waiting by
    ran = [threading.Event() for _ in range(n)]
    last = threading.Event()

    def wait_for_next(i: int, _: object) -> None:
        if i + 1 == n or ran[i + 1].wait(60):
            ran[i].set()

    for i in range(n):
        client.futures.echo(i).add_done_callback(partial(wait_for_next, i))
    client.futures.echo(n).add_done_callback(lambda _: last.set())
    gate.set()

    assert last.wait(60)
    assert all(each.wait(60) for each in ran)


def test_sound_13_a_callback_of_a_broadcast_or_of_a_stream_may_wait_too(unix_client_of) -> None:
    client = unix_client_of(echo=lambda value: value, add_up=sum)
    everybody = courier.broadcast([client, client])
    found: queue.Queue[int] = queue.Queue()

    def ask_again(_: object) -> None:
        found.put(client.futures.echo(2).result(60))

    for future in (courier.submit(everybody.echo, 1), client.futures.add_up(iter([1]))):
        future.add_done_callback(ask_again)

    assert [found.get(timeout=60) for _ in range(2)] == [2, 2]
