"""What becomes of pipelined calls when something goes wrong, and when they leave."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from launchpad import courier
from launchpad.courier.call_stack import current_call
from launchpad.courier.client import stream_calls
from launchpad.courier.client.channel import SocketChannel
from launchpad.courier.client.pending_calls import DeadlineHeap
from launchpad.courier.client.reader import Reader
from launchpad.courier.protocol import framing
from launchpad.courier.transport.fault_injection import Faults
from tests.courier.conftest import in_background
from tests.helpers import raw_sockets
from tests.waiting import until


@pytest.fixture
def never_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing happens because some time has passed without anything happening."""
    monkeypatch.setattr("launchpad.courier.client.reader._IDLE_S", 60.0)


@pytest.mark.parametrize("n", [1, 2, 300])
def test_calls_leave_before_others_are_answered(unix_client_of, gate, never_idle, n) -> None:
    """Nobody waits for their results, either: that would send them, too."""
    client = unix_client_of(hang=gate.wait, echo=lambda value: value)
    answered = threading.Semaphore(0)

    for _ in range(5):
        client.futures.hang()
        for i in range(n):
            client.futures.echo(i).add_done_callback(lambda _: answered.release())
        came = [answered.acquire(timeout=10) for _ in range(n)]

        assert all(came)


def test_a_deadline_is_kept_while_the_server_says_nothing(unix_client_of, gate, never_idle) -> None:
    entered = threading.Event()
    client = unix_client_of(hang=lambda: entered.set() or gate.wait())
    patient = client.futures.hang()
    assert entered.wait(10)

    first = _outcome(client.with_options(timeout_s=0.1).futures.hang())
    several = [client.with_options(timeout_s=s).futures.hang() for s in (0.3, 0.1, 0.2)]

    assert [first, *map(_outcome, several)] == ["DeadlineExceeded"] * 4
    assert not patient.done()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"timeout_s": 0.05}, courier.DeadlineExceeded),
        ({"wait_for_ready": False}, courier.NotSent),
    ],
)
def test_a_call_that_gives_up_fails_alone(serve, connect, unix_address, options, error) -> None:
    client = connect(unix_address)
    patient = client.futures.echo(1)

    impatient = client.with_options(**options).futures.echo(2).exception(10)
    serve(unix_address, echo=lambda value: value)

    assert isinstance(impatient, error)
    assert patient.result(10) == 1


@contextmanager
def noting_frames(address: str) -> Iterator[list[framing.Fields]]:
    """What a client sends to a server that answers none of it."""
    noticed: list[framing.Fields] = []

    def note(sock: socket.socket) -> None:
        raw_sockets.accept(sock)
        decoder = framing.FrameDecoder()
        while n := sock.recv_into(decoder.buffer):
            noticed.extend(decoder.received(n))

    with raw_sockets.listening(address, note):
        yield noticed


def test_a_call_that_has_waited_tells_how_much_time_is_left(connect, unix_address) -> None:
    client = connect(unix_address, call_timeout=20)
    _ = [client.futures.small(), client.futures.large(np.ones(10_000))]
    made_at = time.monotonic()
    until(lambda: time.monotonic() > made_at + 0.05)

    with noting_frames(unix_address) as noticed:
        until(lambda: len(noticed) >= 2)
        courier.close(client)

    assert max(timeout_us for _, _, _, _, _, timeout_us, _ in noticed) < 19.95e6


def test_cancelling_tells_the_server(connect, unix_address) -> None:
    with noting_frames(unix_address) as noticed:
        client = connect(unix_address)
        futures = [client.futures.m([i]) for i in range(2)]
        until(lambda: all(future.is_sent for future in futures))
        futures[1].cancel()
        until(lambda: len(noticed) >= 3)
        courier.close(client)

    assert [frame[0] for frame in noticed] == [framing.CALL, framing.CALL, framing.CANCEL]
    assert noticed[2][1] == noticed[1][1]


@pytest.mark.every_transport
def test_deadlines_are_inherited_by_calls_and_futures(serve, connect, address) -> None:
    inner = connect(address)
    serve(
        address,
        outer=lambda: (current_call.get().deadline, inner.futures.until().result(10)),
        plain=lambda: (current_call.get().deadline, inner.until()),
        until=lambda: current_call.get().deadline,
    )
    client = connect(address, call_timeout=20)

    for call in (client.outer, client.plain):
        began = time.monotonic()
        outer, below = call()

        # The message says how much time is left; how long it was under way its receiver cannot know.
        assert 0 <= below - outer < time.monotonic() - began


def test_calls_that_a_server_sends_back_go_to_the_next(serve, connect, unix_address, gate) -> None:
    """The server stops with one call running, and others that it has read and not begun."""
    entered = threading.Event()
    first = serve(unix_address, size=1, hang=lambda: entered.set() or gate.wait())
    client = connect(unix_address, call_timeout=20)
    running = client.futures.hang()
    assert entered.wait(10)
    stopping = in_background(first.stop, 10.0)
    until(lambda: first._core.is_stopping)

    futures = [client.futures.echo(i) for i in range(10)]
    gate.set()
    stopping.result(10)
    serve(unix_address, echo=lambda value: value)

    assert running.result(10) is True
    assert [future.result(10) for future in futures] == list(range(10))


def test_a_connection_that_sent_one_back_gets_no_more(serve, connect, unix_address, gate) -> None:
    entered = threading.Event()
    server = serve(
        unix_address, hang=lambda: entered.set() or gate.wait(), echo=lambda value: value
    )
    client = connect(unix_address)
    running = client.futures.hang()
    assert entered.wait(10)
    server.drain()

    waiting = client.futures.echo(1)
    refused = client.with_options(wait_for_ready=False).futures.echo(2).exception(10)
    (counts,) = server._core.counts.values()
    n_tries = counts[b"echo"].started
    was_waiting = not waiting.done()
    gate.set()

    assert isinstance(refused, courier.NotSent)
    assert n_tries == 2
    assert was_waiting
    assert running.result(10) is True


def test_a_server_that_drains_is_asked_again_in_its_own_time(serve, connect, unix_address) -> None:
    server = serve(unix_address, echo=lambda value: value)
    client = connect(unix_address)
    client.futures.echo(0).result(10)
    (counts,) = server._core.counts.values()
    server.drain()
    began = time.monotonic()

    future = client.futures.echo(1)
    until(lambda: counts[b"echo"].errors >= 20, within_s=20)

    assert time.monotonic() - began > 0.15
    assert not future.done()


@pytest.mark.parametrize("limited", ["server", "client"])
def test_too_large_a_message_fails_alone(serve, connect, unix_address, limited) -> None:
    limits = {limited: {"max_bytes": 10_000}}
    client = connect(unix_address, **limits.get("client", {}))
    values = [b"x" * n for n in (100, 20_000, 200_000, 200)]

    before = [client.futures.echo(value) for value in values]
    serve(unix_address, echo=lambda value: value, **limits.get("server", {}))
    outcomes = [_outcome(future) for future in before]
    after = [client.futures.echo(value) for value in values]
    outcomes += [_outcome(future) for future in after]

    assert outcomes == [values[0], "MessageTooLarge", "MessageTooLarge", values[3]] * 2


@pytest.mark.every_transport
@pytest.mark.parametrize("limited", ["server", "client"])
def test_a_limit_of_a_few_bytes_holds_for_every_kind_of_call(
    serve, connect, address, limited
) -> None:
    limits = {limited: {"max_bytes": 1000}}
    serve(address, echo=lambda value: value, **limits.get("server", {}))
    client = connect(address, **limits.get("client", {}))
    value = b"x" * 5000

    async def awaited() -> object:
        return await client.aio.echo(value)

    kinds = [
        lambda: client.echo(value),
        lambda: client.futures.echo(value).result(10),
        lambda: asyncio.run(awaited()),
    ]
    for call in kinds:
        assert client.echo(1) == 1  # the handshake is done: what the server takes is known
        with pytest.raises(courier.MessageTooLarge, match="1000 at once"):
            call()


def _outcome(future: Future) -> object:
    error = future.exception(10)
    return type(error).__name__ if error is not None else future.result()


def test_the_memory_of_arguments_is_free_when_the_answer_is_here(unix_client_of) -> None:
    client = unix_client_of(length=len)

    futures = [client.futures.length(b"x" * n) for n in (10, 1_000_000)]
    sizes = [future.result(10) for future in futures]

    assert sizes == [10, 1_000_000]
    assert [future.frame for future in futures] == [b"", b""]


def test_calls_that_no_connection_takes_fail_in_the_end(connect, unix_address) -> None:
    accepted: list[int] = []

    def hang_up(sock: socket.socket) -> None:
        accepted.append(1)
        sock.shutdown(socket.SHUT_RD)
        raw_sockets.accept(sock)

    with raw_sockets.listening(unix_address, hang_up):
        futures = [connect(unix_address).futures.m(b"x" * (1 << 20)) for _ in range(2)]
        errors = [future.exception(20) for future in futures]

    assert all(isinstance(error, courier.CourierError) for error in errors)
    assert len(accepted) <= 2 * 4


@contextmanager
def no_new_threads(named: str) -> Iterator[None]:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith(named):
            raise RuntimeError("can't start new thread")
        start(thread)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        yield


def test_a_thread_that_cannot_be_started_fails_the_call_and_no_other(unix_client_of) -> None:
    ran: list[int] = []
    client = unix_client_of(m=ran.append)

    with no_new_threads(""), pytest.raises(RuntimeError, match="new thread"):
        client.futures.m(1)
    client.futures.m(2).result(10)

    assert ran == [2]


def test_sound_01_a_stream_that_no_thread_fetches_fails_alone(serve, connect, unix_address) -> None:
    server = serve(unix_address, rows=lambda: iter([1]), echo=lambda value: value)
    client = connect(unix_address)
    client.futures.echo(1).result(10)  # there is a thread that reads

    with no_new_threads("courier-future-"), pytest.raises(RuntimeError, match="new thread"):
        client.futures.rows().result(10)

    until(lambda: not server._methods.unclaimed_streams._unclaimed)  # it has been told
    assert client.futures.echo(2).result(10) == 2
    assert list(client.futures.rows().result(10)) == [1]


def test_closing_from_a_callback_is_allowed(unix_client_of, gate) -> None:
    client = unix_client_of(hang=gate.wait, echo=lambda value: value)
    hanging = client.futures.hang()

    client.futures.echo(1).add_done_callback(lambda _: courier.close(client))

    assert isinstance(hanging.exception(10), courier.OutcomeUnknown)


def test_threads_that_submit_while_others_close_get_an_answer_or_an_error(unix_client_of) -> None:
    client = unix_client_of(echo=lambda value: value)

    def submit(i: int) -> str:
        try:
            error = client.futures.echo(i).exception(10)
        except courier.NotSent as refused:
            error = refused
        return type(error).__name__

    with ThreadPoolExecutor(4) as pool:
        outcomes = [pool.submit(submit, i) for i in range(400)]
        while not all(outcome.done() for outcome in outcomes):
            courier.close(client)

    assert {outcome.result() for outcome in outcomes} <= {"NoneType", "NotSent", "OutcomeUnknown"}


def test_compressed_calls_are_answered_compressed(unix_client_of) -> None:
    client = unix_client_of(double=lambda array: array * 2).with_options(compress=True)
    array = np.zeros(200_000)

    futures = [client.futures.double(array + i) for i in range(5)]
    results = [future.result(10) for future in futures]

    assert all((result == 2.0 * i).all() for i, result in enumerate(results))
    assert client._channel.counts[b"double"].bytes_in < array.nbytes


def test_the_thread_ends_when_all_calls_to_a_server_that_is_not_up_were_cancelled(
    connect, unix_address
) -> None:
    client = connect(unix_address)
    future = client.futures.m()
    pipeline = client._channel.connections.get_pipeline()
    until(
        lambda: pipeline.reader is not None and pipeline.reader._pause_s > 0
    )  # it tries to connect

    future.cancel()

    until(lambda: pipeline.reader is None)


def test_sound_01_the_deadline_of_a_done_call_ends_nothing(unix_client_of, never_idle) -> None:
    """It was taken for a time without work, and streams that were not fetched yet were lost."""
    client = unix_client_of(echo=lambda value: value)
    client.futures.echo(0).result(10)
    pipeline = client._channel.connections.get_pipeline()
    reader, late_at = pipeline.reader, time.monotonic() + 1.0
    client.with_options(timeout_s=1.0).futures.echo(1).result(10)

    until(lambda: pipeline.reader is None or time.monotonic() > late_at + 0.1)

    assert reader is not None
    assert pipeline.reader is reader


def test_the_first_deadline_is_that_of_a_call_that_is_not_done() -> None:
    """Else a thread that reads would wait for each of the others, and never be idle."""
    deadlines = DeadlineHeap(open_calls={7})
    for deadline, call_id in ((1.0, 5), (2.0, 6), (3.0, 7), (4.0, 8)):
        deadlines.add(deadline, call_id)

    assert deadlines.first() == 3.0


def test_sound_01_a_connection_stays_until_a_stream_is_fetched(unix_client_of, monkeypatch) -> None:
    """However long that takes: the server drops it with the connection."""
    monkeypatch.setattr("launchpad.courier.client.reader._IDLE_S", 0.01)
    client = unix_client_of(rows=lambda: iter([1, 2, 3]))
    pipeline = client._channel.connections.get_pipeline()
    waits, fetch, wait = [0], stream_calls.attach, Reader._poll_timeout_s

    def counted(reader: Reader) -> float:
        waits[0] += 1
        return wait(reader)

    def late(*args: object) -> object:
        seen = waits[0]
        until(lambda: pipeline.reader is None or waits[0] > seen + 3)
        assert pipeline.reader is not None
        return fetch(*args)

    monkeypatch.setattr(Reader, "_poll_timeout_s", counted)
    monkeypatch.setattr(stream_calls, "attach", late)

    assert list(client.futures.rows().result(30)) == [1, 2, 3]
    until(lambda: pipeline.reader is None)


def test_a_stream_is_lost_if_its_server_stops(serve, connect, unix_address, monkeypatch) -> None:
    server = serve(unix_address, rows=lambda: iter([1, 2, 3]))
    attach = stream_calls.attach

    def attach_after_the_server_stopped(*args: object) -> object:
        server.stop()
        return attach(*args)

    monkeypatch.setattr(stream_calls, "attach", attach_after_the_server_stopped)

    with pytest.raises(courier.StreamBroken, match="after 0 items"):
        connect(unix_address).futures.rows().result(30)


def test_a_stream_that_its_server_is_asked_for_too_late_is_late_and_not_lost(
    serve, connect, address, monkeypatch
) -> None:
    serve(address, rows=lambda: iter([1, 2, 3]))
    exchange = stream_calls.send_until_answered

    def begun_after_the_deadline(
        channel: SocketChannel, method: bytes, *args: Any
    ) -> tuple[Any, framing.Fields]:
        connection, reply = exchange(channel, method, *args)
        if method == framing.ATTACH:
            reply = (framing.NOT_RUN, 0, b"", framing.LATE, (), 0, b"")
        return connection, reply

    monkeypatch.setattr(stream_calls, "send_until_answered", begun_after_the_deadline)

    with pytest.raises(courier.DeadlineExceeded, match="'rows'"):
        connect(address, call_timeout=30).futures.rows().result(30)


def test_a_fault_on_the_way_costs_the_calls_in_flight_and_no_more(unix_client_of) -> None:
    ran: list[int] = []
    client = unix_client_of(m=ran.append, call_timeout=30)
    with Faults(seed=5, drop_request=0.05, drop_response=0.05, cut=0.05, corrupt=0.05):
        futures = []
        for i in range(600):
            futures.append(client.futures.m(i))
            if i % 20 == 0:
                futures[-1].exception(20)
        errors = [future.exception(20) for future in futures]

    acknowledged = [i for i, error in enumerate(errors) if error is None]
    assert {type(error) for error in errors} <= {type(None), courier.OutcomeUnknown}
    assert len(ran) == len(set(ran))
    assert set(acknowledged) <= set(ran)
    assert 0 < len(acknowledged) < 600
