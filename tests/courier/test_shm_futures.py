"""Futures of calls with large arrays: each has a connection to itself, which shares memory."""

from __future__ import annotations

import concurrent.futures
import contextlib
import gc
import os
import select
import signal
import threading
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from launchpad import courier
from launchpad.courier.client import answer_poller, shm_calls
from launchpad.courier.client.shm_calls import MAX_CALLS
from launchpad.courier.shm import segments
from launchpad.courier.shm.sender import SharedBuffers, pool
from tests.courier.conftest import exit_code_of_child, in_background
from tests.helpers.large_arrays import MB, SERVER, n_mapped, n_open, numbers
from tests.waiting import until

pytestmark = pytest.mark.skipif(not segments.IS_SUPPORTED, reason="shared memory needs Linux")


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    gc.collect()
    until(lambda: n_mapped() == n_open() == 0)
    until(lambda: not [each for each in threading.enumerate() if "courier-" in each.name])


def test_arguments_are_private_and_may_be_changed_at_once(client) -> None:
    array = np.ones(MB, np.uint8)
    futures = []
    for i in range(2 * MAX_CALLS):
        array[:] = i
        futures.append(client.futures.total(array))
        futures.append(client.futures.overwrite(array))
    array[:] = 255

    assert [future.result(20) for future in futures[::2]] == [i * MB for i in range(2 * MAX_CALLS)]


def by_callback(future: Any) -> None:
    called = threading.Event()
    future.add_done_callback(lambda _: called.set())
    assert called.wait(20)


def by_done(future: Any) -> None:
    until(future.done)


def by_threads(future: Any) -> None:
    waits = [in_background(future.result, 20) for _ in range(4)]
    assert len({id(wait.result(20)) for wait in waits}) == 1


def by_impatience(future: Any) -> None:
    """Gives up often, and comes back."""
    for _ in range(100_000):
        with contextlib.suppress(TimeoutError):
            future.result(0.0003)
            return


@pytest.mark.parametrize("wait_for", [by_callback, by_done, by_threads, by_impatience])
@pytest.mark.parametrize("opens_after_s", [0.0, 0.02])
def test_an_answer_is_had_however_it_is_awaited(client, methods, wait_for, opens_after_s) -> None:
    for _ in range(5):
        futures = [client.futures.wait(numbers(MB)) for _ in range(3)]
        timer = threading.Timer(opens_after_s, methods.open)
        timer.start()

        for future in futures:
            wait_for(future)

        assert [future.result(0) for future in futures] == [MB] * 3
        timer.join()
        methods.gate.clear()


def test_an_answer_that_is_not_waited_for_is_had_all_the_same(client, methods) -> None:
    client.futures.echo(numbers(MB)).result(20)
    n_connections = client.stats().connections

    for _ in range(3):
        futures = [client.futures.total(numbers(MB)) for _ in range(4)]
        until(lambda futures=futures: all(future.is_completed for future in futures))
        del futures
    forgotten = client.futures.total(numbers(MB))
    del forgotten

    until(lambda: client.stats().methods["total"].in_flight == 0)
    assert client.stats().connections <= n_connections + 3  # used again and again


def test_more_calls_than_have_connections_may_wait_for_each_other(client, methods) -> None:
    waiting = [client.futures.wait(numbers(MB)) for _ in range(3 * MAX_CALLS)]
    assert methods.are_entered(len(waiting))

    assert client.futures.open().result(20)

    assert [future.result(20) for future in waiting] == [MB] * 3 * MAX_CALLS
    assert client.stats().connections <= MAX_CALLS + 1


@pytest.fixture
def no_tick(monkeypatch) -> None:
    """No answer is read but by the thread that asks for it; and the poller does not end by itself."""
    monkeypatch.setattr(answer_poller, "_TICK_S", 60.0)
    monkeypatch.setattr(answer_poller, "_IDLE_S", 60.0)


def test_an_answer_that_has_come_is_had_without_waiting_and_its_segment_serves_other_clients(
    serve, connect, short_directory, no_tick
) -> None:
    array = np.ones(4 * MB, np.uint8)
    for i in range(2):
        serve(f"unix:{short_directory}/{i}", total=lambda array: int(array.sum()))
    first, second = (connect(f"unix:{short_directory}/{i}") for i in range(2))

    answered = first.futures.total(array)
    connection = until(lambda: answered.connection)
    assert select.select([connection.sock], [], [], 20)[0]
    until(lambda: all(segment.is_returned for segment in pool._segments))
    called = second.futures.total(array)

    assert n_open() == 1
    assert answered.result(0) == called.result(20) == 4 * MB


def test_an_answer_that_nobody_keeps_is_gone_at_once(client, no_tick) -> None:
    future = client.futures.echo(numbers(MB))
    future.add_done_callback(lambda _: None)  # so the poller reads it
    until(lambda future=future: future.is_completed)
    kept = weakref.ref(future)

    del future

    until(lambda: kept() is None, 20)
    assert [each for each in threading.enumerate() if "courier-answers" in each.name]


def test_a_call_cancelled_as_a_thread_begins_to_read_leaves_no_connection(client, methods) -> None:
    future = client.futures.wait(numbers(MB))
    assert methods.are_entered(1)
    canceller = threading.Thread(target=future.cancel)
    lock = future.claim

    def acquire(blocking: bool = True) -> bool:
        has_it = lock.acquire(blocking)
        if has_it and canceller.ident is None:  # it is to happen before this thread goes on
            canceller.start()
            canceller.join(0.3)  # it may have to wait for this thread
        return has_it

    lock.acquire()
    future.claim = SimpleNamespace(acquire=acquire, release=lock.release)
    lock.release()

    future.calls.watch(future)

    canceller.join()
    assert future.cancelled()
    until(lambda: client.stats().connections == 0, 20)


def test_an_interrupt_of_a_thread_that_reads_does_not_leave_the_call_without_an_outcome(
    client, methods, no_tick, monkeypatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    asked = client.futures.wait(numbers(MB))
    assert methods.are_entered(1)
    until(lambda: asked.connection).try_receive = interrupt
    with pytest.raises(KeyboardInterrupt):
        asked.done()
    assert isinstance(asked.exception(20), courier.OutcomeUnknown)

    release = shm_calls.release_connection
    monkeypatch.setattr(
        shm_calls, "release_connection", lambda *args: release(*args) or interrupt()
    )
    methods.open()
    read = client.futures.wait(numbers(MB))
    until(lambda: read.connection)
    with pytest.raises(KeyboardInterrupt):
        read.result(20)
    assert isinstance(read.exception(), courier.OutcomeUnknown)
    assert client.stats().connections == len(client._channel.connections.shm_connections) == 1


def test_a_large_call_past_its_deadline_fails_however_it_is_waited_for(client, methods) -> None:
    client.futures.echo(numbers(MB)).result(20)
    limited = client.with_options(timeout_s=0.2).futures

    read, watched, left = (limited.wait(numbers(MB)) for _ in range(3))
    done = threading.Event()
    watched.add_done_callback(lambda _: done.set())

    with pytest.raises(courier.DeadlineExceeded):
        read.result(20)
    assert done.wait(20)
    until(lambda: left.is_completed)
    for future in (watched, left):
        assert isinstance(future.exception(), courier.DeadlineExceeded)
    methods.open()
    assert client.futures.total(numbers(MB)).result(20) == int(numbers(MB).sum())


def test_cancelling_a_large_call_releases_the_threads_that_wait_for_it(client, methods) -> None:
    client.futures.echo(numbers(MB)).result(20)
    future = client.futures.wait_until_gone(numbers(MB))
    assert methods.are_entered(1)
    waits = [in_background(future.result, 20) for _ in range(2)]

    assert future.cancel()

    for wait in waits:
        assert isinstance(wait.exception(20), concurrent.futures.CancelledError)
    until(lambda: methods.kept)
    assert future.cancelled()


def test_a_large_call_cancelled_in_time_does_not_run(spawn_server, connect, unix_address) -> None:
    server, client = spawn_server(unix_address, SERVER), connect(unix_address)
    for _ in range(3):
        client.futures.count(numbers(MB)).result(20)
    os.kill(server.pid, signal.SIGSTOP)
    until(lambda: psutil.Process(server.pid).status() == psutil.STATUS_STOPPED)

    future = client.futures.count(numbers(MB))
    assert future.cancel()
    os.kill(server.pid, signal.SIGCONT)

    assert [client.count(numbers(MB)) for _ in range(2)] == [4, 5]


def test_closing_the_client_ends_large_futures(client, methods) -> None:
    futures = [client.futures.wait(numbers(MB)) for _ in range(3)]
    assert methods.are_entered(len(futures))
    waits = in_background(futures[0].exception, 20)

    courier.close(client)

    assert isinstance(waits.result(20), courier.OutcomeUnknown)
    assert [type(future.exception(20)) for future in futures] == [courier.OutcomeUnknown] * 3
    assert client.stats().connections == 0
    assert client.futures.total(numbers(MB)).result(20) == int(numbers(MB).sum())


def test_a_client_that_is_closed_as_a_large_call_goes_to_the_socket_does_not_make_it(
    connect, unix_address, monkeypatch
) -> None:
    client = connect(unix_address)  # there is no server
    copy = SharedBuffers.copy

    def close_and_copy(shared: SharedBuffers) -> Any:
        courier.close(client)
        return copy(shared)

    monkeypatch.setattr(SharedBuffers, "copy", close_and_copy)

    future = client.futures.total(numbers(MB))

    assert isinstance(future.exception(20), courier.NotSent)


def test_large_futures_wait_for_their_server(serve, connect, unix_address, methods) -> None:
    client = connect(unix_address)
    array, small = np.empty(MB, np.uint8), np.empty(8192, np.uint8)
    early = []
    for i in range(4):
        array[:], small[:] = i, 0
        early.append(client.futures.total(array, small))
        array[:], small[:] = 255, 255
    server = serve(unix_address, total=methods.total, echo=methods.echo)
    assert [future.result(20) for future in early] == [0, MB, 2 * MB, 3 * MB]
    for future in [client.futures.echo(numbers(MB)) for _ in range(3)]:
        future.result(20)

    server.stop()
    late = [client.futures.total(np.full(MB, i, np.uint8)) for i in range(4)]
    with pytest.raises(courier.NotSent):
        client.with_options(wait_for_ready=False).futures.total(numbers(MB)).result(20)
    serve(unix_address, total=methods.total)

    assert [future.result(20) for future in late] == [0, MB, 2 * MB, 3 * MB]


def test_a_stop_sends_back_what_has_not_begun(serve, connect, unix_address, methods) -> None:
    client = connect(unix_address)
    server = serve(unix_address, total=methods.total, wait=methods.wait)
    futures = [client.futures.wait(numbers(MB)) for _ in range(2)]
    assert methods.are_entered(len(futures))
    client.futures.total(numbers(MB)).result(20)

    stop = in_background(server.stop, 20)
    until(lambda: server._core.is_stopping)
    late = client.futures.total(np.full(MB, 2, np.uint8))
    methods.open()
    stop.result(20)
    serve(unix_address, total=methods.total)

    assert [future.result(20) for future in futures] == [MB] * 2
    assert late.result(20) == 2 * MB


def test_what_may_run_twice_is_made_again_with_the_arguments_that_it_had(
    spawn_server, connect, unix_address, tmp_path
) -> None:
    client = connect(unix_address).with_options(idempotent=True)
    spawn_server(unix_address, SERVER)
    client.futures.echo(numbers(MB)).result(20)
    future = client.futures.overwrite_and_die_once(numbers(MB), str(tmp_path / "died"))
    until((tmp_path / "died").exists)

    spawn_server(unix_address, SERVER)

    assert future.result(20) == int(numbers(MB).sum())


def test_a_fork_leaves_large_futures_to_the_parent(client, methods) -> None:
    futures = [client.futures.wait(numbers(MB)) for _ in range(2)]
    assert methods.are_entered(len(futures))

    assert exit_code_of_child(lambda: client.stats().connections) == 0
    methods.open()
    assert [future.result(20) for future in futures] == [MB] * 2


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (shm_calls, "AnswerPoller"),
        (answer_poller, "WakeupSocketpair"),
    ],
)
def test_large_futures_go_through_the_socket_where_the_system_has_no_room(
    client, monkeypatch, place, name
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(24, "too many open files")

    monkeypatch.setattr(place, name, refuse)

    assert client.futures.total(numbers(MB)).result(20) == int(numbers(MB).sum())
    assert not client._channel.connections.get_shm_calls()._pending.calls
