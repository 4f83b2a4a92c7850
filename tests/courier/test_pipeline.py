"""What becomes of pipelined calls when something goes wrong, and when they leave."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import numpy as np
import pytest

from launchpad import courier
from launchpad.courier.call_stack import current_call
from launchpad.courier.client import stream_calls
from launchpad.courier.client.pending_calls import DeadlineHeap
from launchpad.courier.client.reader import Reader
from launchpad.courier.protocol import framing, handshake
from tests.waiting import until

LONG_S = 60.0  # no test takes that long


@pytest.fixture
def never_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing happens because some time has passed without anything happening."""
    monkeypatch.setattr("launchpad.courier.client.reader._IDLE_S", LONG_S)


@pytest.mark.parametrize("n", [1, 2, 50, 300])
def test_calls_leave_although_those_before_them_are_not_answered(
    serve, connect, unix_address, gate, never_idle, n: int
) -> None:
    """Nobody waits for their results, either: that would send them, too."""
    serve(unix_address, hang=gate.wait, echo=lambda value: value)
    client = connect(unix_address)
    answered = threading.Semaphore(0)

    for _ in range(5):
        client.futures.hang()
        for i in range(n):
            client.futures.echo(i).add_done_callback(lambda _: answered.release())
        came = [answered.acquire(timeout=10) for _ in range(n)]

        assert all(came)


def test_a_deadline_is_kept_while_nothing_comes_from_the_server(
    serve, connect, unix_address, gate, never_idle
) -> None:
    entered = threading.Event()
    serve(unix_address, hang=lambda: entered.set() or gate.wait())
    client = connect(unix_address)
    patient = client.futures.hang()
    assert entered.wait(10)

    first = _outcome(client.with_options(timeout_s=0.1).futures.hang())
    several = [client.with_options(timeout_s=s).futures.hang() for s in (0.3, 0.1, 0.2)]

    assert [first, *map(_outcome, several)] == ["DeadlineExceeded"] * 4
    assert not patient.done()


def test_a_deadline_is_kept_while_the_server_is_not_up(connect, unix_address) -> None:
    client = connect(unix_address)
    patient = client.futures.echo(1)

    with_deadline = client.with_options(timeout_s=0.05).futures.echo(2)

    assert isinstance(with_deadline.exception(10), courier.DeadlineExceeded)
    assert not patient.done()


def test_a_call_that_does_not_wait_for_its_server_fails_alone(serve, connect, unix_address) -> None:
    client = connect(unix_address)
    patient = client.futures.echo(1)

    with_deadline = client.with_options(wait_for_ready=False).futures.echo(2)
    error = with_deadline.exception(10)
    serve(unix_address, echo=lambda value: value)

    assert isinstance(error, courier.NotSent)
    assert patient.result(10) == 1


def test_a_failure_check_ends_the_wait_of_all(connect, unix_address) -> None:
    failures: list[Exception] = []
    client = connect(unix_address, failure_check=lambda: failures[0] if failures else None)
    futures = [client.futures.echo(i) for i in range(3)]

    failures.append(courier.WorkerFailed("killed by SIGKILL"))

    assert [future.exception(10) for future in futures] == failures * 3


def test_a_call_that_has_waited_for_its_server_tells_it_how_much_time_is_left(
    serve, connect, unix_address
) -> None:
    client = connect(unix_address, call_timeout=20)
    latest = time.monotonic() + 20.1
    futures = [client.futures.until(), client.futures.until(np.ones(10_000))]

    while time.monotonic() < latest - 19.5:
        time.sleep(0.01)
    serve(unix_address, until=lambda *_: current_call.get().deadline)

    assert all(future.result(10) < latest for future in futures)


def test_deadlines_are_inherited_by_futures(serve, connect, unix_address) -> None:
    inner = connect(unix_address)
    serve(
        unix_address,
        outer=lambda: (current_call.get().deadline, inner.futures.until().result(10)),
        until=lambda: current_call.get().deadline,
    )

    began = time.monotonic()
    outer, below = connect(unix_address, call_timeout=20).outer()

    # The message says how much time is left; how long it was under way its receiver cannot know.
    assert 0 <= below - outer < time.monotonic() - began


def test_a_call_that_may_run_twice_is_made_again_when_its_connection_is_lost(
    spawn_server, connect, unix_address
) -> None:
    first = spawn_server(unix_address)
    client = connect(unix_address)
    again = client.with_options(idempotent=True)
    client.futures.echo(0).result(10)
    lost = [client.futures.hang() for _ in range(10)]
    repeated = [again.futures.hang() for _ in range(10)]
    until(lambda: client.n_hanging() >= 20)

    first.kill()
    first.wait(10)
    errors = [future.exception(10) for future in lost]
    spawn_server(unix_address)
    until(lambda: client.n_hanging() >= 10)

    assert {type(error) for error in errors} == {courier.OutcomeUnknown}
    assert not any(future.done() for future in repeated)


def test_a_call_that_the_server_does_not_take_is_made_again_at_its_successor(
    serve, connect, unix_address, gate
) -> None:
    """The server stops with one call running, and others that it has read and not begun."""
    entered = threading.Event()
    first = serve(unix_address, size=1, hang=lambda: entered.set() or gate.wait())
    client = connect(unix_address, call_timeout=20)
    running = client.futures.hang()
    assert entered.wait(10)
    stopping = threading.Thread(target=first.stop, args=(10.0,))
    stopping.start()
    until(lambda: first._core.is_stopping)

    futures = [client.futures.echo(i) for i in range(10)]
    gate.set()
    stopping.join(10)
    serve(unix_address, echo=lambda value: value)

    assert running.result(10) is True
    assert [future.result(10) for future in futures] == list(range(10))


def test_calls_wait_while_a_server_drains_and_those_that_run_are_answered(
    serve, connect, unix_address, gate
) -> None:
    entered = threading.Event()
    server = serve(
        unix_address, hang=lambda: entered.set() or gate.wait(), echo=lambda value: value
    )
    client = connect(unix_address)
    running = client.futures.hang()
    assert entered.wait(10)
    server.drain()

    waiting = client.futures.echo(1)
    refused = client.with_options(wait_for_ready=False).futures.echo(2)
    error = refused.exception(10)
    was_waiting = not waiting.done() and not running.done()
    (counts,) = server._core.counts.values()
    n_tries = counts[b"echo"].started
    gate.set()
    result = running.result(10)
    server._core.is_draining = server._core.is_stopping = False

    assert isinstance(error, courier.NotSent)
    assert was_waiting
    assert n_tries == 2  # each once: this connection is of no more use to them
    assert result is True
    assert waiting.result(10) == 1


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


def test_cancelling_tells_the_server(connect, unix_address) -> None:
    with _server_that_listens(unix_address, n_frames=3) as noticed:
        client = connect(unix_address)
        futures = [client.futures.m([i]) for i in range(2)]
        until(lambda: all(future.is_sent for future in futures))
        futures[1].cancel()

    assert [kind for kind, _ in noticed] == [framing.CALL, framing.CALL, framing.CANCEL]
    assert noticed[2][1] == noticed[1][1]


@contextmanager
def _server_that_listens(address: str, n_frames: int) -> Iterator[list[tuple[int, int]]]:
    """It greets one client, and writes down so many of its frames."""
    noticed: list[tuple[int, int]] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address.removeprefix("unix:"))
        listener.listen()

        def main() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.recv(handshake.CLIENT_HELLO_SIZE, socket.MSG_WAITALL)
                sock.sendall(
                    handshake.encode_server_hello(handshake.ACCEPTED, bytes(16), "listener")
                )
                decoder = framing.FrameDecoder()
                while len(noticed) < n_frames and (n := sock.recv_into(decoder.buffer)):
                    noticed.extend((frame[0], frame[1]) for frame in decoder.received(n))

        thread = threading.Thread(target=main)
        thread.start()
        yield noticed
        thread.join(10)


def test_what_is_more_than_the_server_takes_fails_alone(serve, connect, unix_address) -> None:
    server = courier.Server("small", address=unix_address, max_bytes=10_000)
    server.bind("size", lambda value: len(value))
    client = connect(unix_address)

    before = [client.futures.size(b"x" * n) for n in (100, 20_000, 200_000)]
    server.start()
    try:
        results = [_outcome(future) for future in before]
        after = [client.futures.size(b"x" * n) for n in (100, 20_000, 200_000)]
        results += [_outcome(future) for future in after]
    finally:
        server.stop()

    assert results == [100, "MessageTooLarge", "MessageTooLarge"] * 2


def test_an_answer_that_is_more_than_the_client_takes_fails_alone(serve, unix_address) -> None:
    serve(unix_address, make=lambda n: b"x" * n)

    with courier.Client(unix_address, max_bytes=10_000) as client:
        futures = [client.futures.make(n) for n in (100, 20_000, 200_000, 200)]
        outcomes = [_outcome(future) for future in futures]

    assert [o if isinstance(o, str) else len(o) for o in outcomes] == [
        100,
        "MessageTooLarge",
        "MessageTooLarge",
        200,
    ]


def _outcome(future: Future) -> object:
    error = future.exception(10)
    return type(error).__name__ if error is not None else future.result()


def test_both_ends_count_every_call(serve, connect, unix_address) -> None:
    server = serve(unix_address, echo=lambda value: value, fail=lambda: [][0])
    client = connect(unix_address)
    futures = [client.futures.echo(i) for i in range(500)]
    futures += [client.futures.echo(np.ones(1000)) for _ in range(10)]
    futures += [client.futures.fail() for _ in range(20)]
    cancelled = client.futures.echo(1)
    cancelled.cancel()
    for future in futures:
        future.exception(10)

    here = client._channel.counts
    (there,) = server._core.counts.values()

    for counts in (here, there):
        echo, fail = counts[b"echo"], counts[b"fail"]
        assert sum(echo.buckets) == echo.started >= 510
        assert (echo.errors, fail.started, sum(fail.buckets), fail.errors) == (0, 20, 20, 20)
        assert min(echo.bytes_in, echo.bytes_out) > 80_000
    assert here[b"echo"].started == 511


def test_the_memory_of_arguments_is_free_when_the_answer_is_here(serve, connect, unix_address):
    serve(unix_address, length=len)
    client = connect(unix_address)

    futures = [client.futures.length(b"x" * n) for n in (10, 1_000_000)]
    sizes = [future.result(10) for future in futures]

    assert sizes == [10, 1_000_000]
    assert [future.frame for future in futures] == [b"", b""]


def test_calls_that_no_connection_takes_fail_in_the_end(connect, unix_address) -> None:
    with _server_that_hangs_up(unix_address) as n_accepted:
        futures = [connect(unix_address).futures.m(b"x" * (1 << 20)) for _ in range(2)]
        errors = [future.exception(20) for future in futures]

    assert all(isinstance(error, courier.CourierError) for error in errors)
    assert n_accepted[0] <= 2 * 4


@contextmanager
def _server_that_hangs_up(address: str) -> Iterator[list[int]]:
    """It greets whoever comes, and closes."""
    n_accepted = [0]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address.removeprefix("unix:"))
        listener.listen()

        def main() -> None:
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                n_accepted[0] += 1
                with sock:
                    sock.recv(handshake.CLIENT_HELLO_SIZE, socket.MSG_WAITALL)
                    sock.shutdown(socket.SHUT_RD)
                    sock.sendall(
                        handshake.encode_server_hello(handshake.ACCEPTED, bytes(16), "rude")
                    )

        thread = threading.Thread(target=main)
        thread.start()
        yield n_accepted
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def test_a_thread_that_cannot_be_started_fails_the_call_and_not_those_after_it(
    serve, connect, unix_address, monkeypatch
) -> None:
    ran: list[int] = []
    serve(unix_address, m=ran.append)
    client = connect(unix_address)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            client.futures.m(1)
    client.futures.m(2).result(10)

    assert ran == [2]


def test_sound_01_a_stream_that_no_thread_can_fetch_fails_its_future_and_no_other(
    serve, connect, unix_address, monkeypatch
) -> None:
    server = serve(unix_address, rows=lambda: iter([1]), echo=lambda value: value)
    client = connect(unix_address)
    client.futures.echo(1).result(10)  # there is a thread that reads
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("courier-future-"):
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            client.futures.rows().result(10)

    until(lambda: not server._methods.unclaimed_streams._unclaimed)  # it has been told
    assert client.futures.echo(2).result(10) == 2
    assert list(client.futures.rows().result(10)) == [1]


def test_closing_from_a_callback_is_allowed(serve, connect, unix_address, gate) -> None:
    serve(unix_address, hang=gate.wait, echo=lambda value: value)
    client = connect(unix_address)
    hanging = client.futures.hang()

    client.futures.echo(1).add_done_callback(lambda _: courier.close(client))

    assert isinstance(hanging.exception(10), courier.OutcomeUnknown)


def test_threads_that_submit_while_others_close_get_an_answer_or_an_error(
    serve, connect, unix_address
) -> None:
    serve(unix_address, echo=lambda value: value)
    client = connect(unix_address)
    outcomes: list[str] = []

    def submit() -> None:
        for i in range(300):
            try:
                error = client.futures.echo(i).exception(10)
            except courier.NotSent as refused:
                error = refused
            outcomes.append(type(error).__name__)

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        courier.close(client)
    for thread in threads:
        thread.join(10)

    assert len(outcomes) == 1200
    assert set(outcomes) <= {"NoneType", "NotSent", "OutcomeUnknown"}


def test_many_threads_share_one_pipeline(serve, connect, unix_address) -> None:
    serve(unix_address, echo=lambda value: value)
    client = connect(unix_address)
    wrong: list[int] = []

    def work(k: int) -> None:
        futures = [client.futures.echo((k, i)) for i in range(2000)]
        wrong.append(sum(f.result(20) != (k, i) for i, f in enumerate(futures)))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert wrong == [0] * 6


def test_compressed_calls_are_answered_compressed(serve, connect, unix_address) -> None:
    serve(unix_address, double=lambda array: array * 2)
    client = connect(unix_address).with_options(compress=True)
    array = np.zeros(200_000)

    futures = [client.futures.double(array + i) for i in range(5)]
    results = [future.result(10) for future in futures]

    assert all((result == 2.0 * i).all() for i, result in enumerate(results))
    assert client._channel.counts[b"double"].bytes_in < array.nbytes


def test_the_thread_ends_when_all_calls_were_cancelled_before_a_server_came(
    connect, unix_address
) -> None:
    client = connect(unix_address)

    future = client.futures.m()
    future.cancel()
    pipeline = client._channel.connections.get_pipeline()
    deadline = time.monotonic() + 10
    while pipeline.reader is not None and time.monotonic() < deadline:
        time.sleep(0.01)

    assert pipeline.reader is None


def test_sound_01_the_deadline_of_a_call_that_is_done_does_not_end_the_connection(
    serve, connect, unix_address, never_idle
) -> None:
    """It was taken for a time without work, and streams that were not fetched yet were lost."""
    serve(unix_address, echo=lambda value: value)
    client = connect(unix_address)
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


def test_sound_01_the_connection_of_a_future_stays_until_its_stream_has_been_fetched(
    serve, connect, unix_address, monkeypatch
) -> None:
    """However long that takes: the server drops it with the connection."""
    monkeypatch.setattr("launchpad.courier.client.reader._IDLE_S", 0.01)
    serve(unix_address, rows=lambda: iter([1, 2, 3]))
    client = connect(unix_address)
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


def test_a_stream_is_lost_when_its_server_stops_before_the_client_has_fetched_it(
    serve, connect, unix_address, monkeypatch
) -> None:
    server = serve(unix_address, rows=lambda: iter([1, 2, 3]))
    attach = stream_calls.attach

    def attach_after_the_server_stopped(*args: object) -> object:
        server.stop()
        return attach(*args)

    monkeypatch.setattr(stream_calls, "attach", attach_after_the_server_stopped)

    with pytest.raises(courier.StreamBroken, match="after 0 items"):
        connect(unix_address).futures.rows().result(30)


def test_a_fault_on_the_way_costs_the_calls_in_flight_and_no_more(
    serve, connect, unix_address
) -> None:
    from launchpad.courier.transport.fault_injection import Faults

    ran: list[int] = []
    serve(unix_address, m=ran.append)
    client = connect(unix_address, call_timeout=30)
    with Faults(seed=5, drop_request=0.05, drop_response=0.05, cut=0.05, corrupt=0.05):
        futures = []
        for i in range(3000):
            futures.append(client.futures.m(i))
            if i % 20 == 0:
                futures[-1].exception(20)
        errors = [future.exception(20) for future in futures]

    acknowledged = [i for i, error in enumerate(errors) if error is None]
    assert {type(error) for error in errors} <= {type(None), courier.OutcomeUnknown}
    assert len(ran) == len(set(ran))
    assert set(acknowledged) <= set(ran)
    assert 0 < len(acknowledged) < 3000
