"""Futures of calls with large arrays: each has a connection to itself, which shares memory."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import gc
import os
import select
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import psutil
import pytest

import launchpad as lp
from launchpad import courier
from launchpad.courier.client import answer_poller, shm_calls
from launchpad.courier.client.channel import SocketChannel
from launchpad.courier.client.shm_calls import MAX_CALLS, ShmCalls
from launchpad.courier.shm import segments
from launchpad.courier.shm.sender import SharedBuffers, pool
from launchpad.courier.transport.fault_injection import Faults
from tests.courier.conftest import begin_source
from tests.courier.test_shm import is_shared, n_mapped, n_open, numbers
from tests.waiting import until

pytestmark = pytest.mark.skipif(not segments.IS_SUPPORTED, reason="shared memory needs Linux")

MB = 1 << 20
SERVER = """
{begin}
import os, resource, threading
import numpy as np

def overwrite_and_die_once(array, path):
    total = int(array.sum())
    if not os.path.exists(path):
        open(path, "w").close()
        array[:] = 0
        os._exit(1)
    return total

calls = []

def count(array):
    calls.append(len(array))
    return len(calls)

server = courier.Server("victim", address={address!r})
server.bind("count", count)
server.bind("total", lambda array: int(array.sum()))
server.bind("limit_descriptors", lambda n: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n)))
server.bind("echo", lambda value: value)
server.bind("hang", lambda array: threading.Event().wait())
server.bind("overwrite_and_die_once", overwrite_and_die_once)
server.start()
print("up", flush=True)
server.join()
"""


class Methods:
    """What the server in this process serves."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.entered = threading.Semaphore(0)
        self.ran: list[Any] = []

    def echo(self, value: Any) -> Any:
        return value

    def total(self, *arrays: Any) -> int:
        return sum(int(array.sum()) for array in arrays)

    def give(self, n: int, value: int = 1) -> Any:
        return np.full(n, value, np.uint8)

    def wait(self, array: Any) -> int:
        self.entered.release()
        assert self.gate.wait(60)
        self.ran.append(len(array))
        return len(array)

    def overwrite(self, array: Any) -> None:
        array[:] = 0

    def fail(self, array: Any) -> None:
        raise ValueError(f"{len(array)} are too many")

    def rows(self, array: Any) -> Iterator[int]:
        yield from array[:3].tolist()

    def is_gone(self, array: Any) -> bool:
        self.entered.release()
        caller = courier.caller.current.get()
        until(lambda: caller.is_gone(caller.call_id))
        self.ran.append("gone")
        return True

    def open(self) -> bool:
        self.gate.set()
        return True


@pytest.fixture
def methods() -> Iterator[Methods]:
    made = Methods()
    yield made
    made.gate.set()


@pytest.fixture
def client(methods, serve, connect, unix_address) -> courier.Client[Any]:
    names = [name for name in vars(Methods) if not name.startswith("_")]
    serve(unix_address, **{name: getattr(methods, name) for name in names})
    return connect(unix_address)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    gc.collect()
    until(lambda: n_mapped() == n_open() == 0)
    until(lambda: not [each for each in threading.enumerate() if "courier-" in each.name])


@contextlib.contextmanager
def running(python: Any, address: str) -> Iterator[Any]:
    """A server in a process of its own."""
    with python(SERVER.format(begin=begin_source(), address=address)) as process:
        assert process.stdout.readline() == "up\n"
        yield process


# Both ways.


def test_arrays_of_futures_share_memory_both_ways(client) -> None:
    for i in range(3):
        result = client.futures.echo({"a": numbers(MB, first=i), "b": numbers(100)}).result(20)

        assert np.array_equal(result["a"], numbers(MB, first=i))
        assert np.array_equal(result["b"], numbers(100))
        assert is_shared(result["a"])


def test_a_method_that_has_returned_something_large_shares_its_results(client) -> None:
    client.futures.give(MB, 3).result(20)

    results = [client.futures.give(MB, i) for i in range(3)]

    assert [int(future.result(20).sum()) for future in results] == [0, MB, 2 * MB]
    assert all(is_shared(future.result()) for future in results)


def test_arguments_are_private_and_may_be_changed_at_once(client) -> None:
    array = np.ones(MB, np.uint8)
    futures = []
    for i in range(2 * MAX_CALLS):
        array[:] = i
        futures.append(client.futures.total(array))
        futures.append(client.futures.overwrite(array))
    array[:] = 255

    assert [future.result(20) for future in futures[::2]] == [i * MB for i in range(2 * MAX_CALLS)]


def test_a_broadcast_of_an_array_gives_each_server_one_of_its_own(
    serve, connect, short_directory
) -> None:
    def double(array: Any) -> Any:
        array *= 2
        return array

    clients = []
    for i in range(3):
        serve(f"unix:{short_directory}/{i}", double=double)
        clients.append(connect(f"unix:{short_directory}/{i}"))
    group = lp.broadcast(clients)

    for _ in range(3):
        answers = group.double(np.ones(MB, np.uint8))
        assert [int(answer.sum()) for answer in answers] == [2 * MB] * 3
        assert all(is_shared(answer) for answer in answers)
        del answers


def test_errors_and_streams_come_as_they_do_otherwise(client) -> None:
    for _ in range(3):
        with pytest.raises(ValueError, match="1048576 are too many"):
            client.futures.fail(numbers(MB)).result(20)
        assert list(client.futures.rows(numbers(MB)).result(20)) == [0, 1, 2]
        with pytest.raises(courier.MethodNotFound):
            client.futures.nothing(numbers(MB)).result(20)


def test_options_apply_to_large_futures(client) -> None:
    for options in ({"timeout_s": 20.0}, {"compress": True}, {"idempotent": True}):
        for i in range(3):
            future = client.with_options(**options).futures.echo(numbers(MB, first=i))
            assert np.array_equal(future.result(20), numbers(MB, first=i))


def test_large_futures_are_counted_with_their_bytes(client, methods) -> None:
    client.futures.echo(numbers(MB)).result(20)
    waits = [client.futures.wait(numbers(MB)) for _ in range(3)]
    for _ in waits:
        methods.entered.acquire(timeout=20)

    under_way = client.stats().methods["wait"]
    methods.gate.set()
    for future in waits:
        future.result(20)

    echoed, waited = client.stats().methods["echo"], client.stats().methods["wait"]
    assert (echoed.calls, echoed.bytes_out > MB, echoed.bytes_in > MB) == (1, True, True)
    assert (under_way.in_flight, waited.in_flight, waited.calls) == (3, 0, 3)
    assert waited.bytes_out > 3 * MB


# However the answer is waited for.


def by_result(future: Any) -> None:
    future.result(20)


def by_callback(future: Any) -> None:
    called = threading.Event()
    future.add_done_callback(lambda _: called.set())
    assert called.wait(20)


def by_wait(future: Any) -> None:
    assert concurrent.futures.wait([future], 20).done


def by_as_completed(future: Any) -> None:
    assert list(concurrent.futures.as_completed([future], 20)) == [future]


def by_done(future: Any) -> None:
    until(future.done)


def by_asyncio(future: Any) -> None:
    async def ask() -> None:
        async with asyncio.timeout(20):
            await asyncio.wrap_future(future)

    asyncio.run(ask())


def by_threads(future: Any) -> None:
    with ThreadPoolExecutor(4) as threads:
        assert len({id(each) for each in threads.map(lambda _: future.result(20), range(4))}) == 1


def by_impatience(future: Any) -> None:
    """Gives up often, and comes back."""
    for _ in range(100_000):
        with contextlib.suppress(TimeoutError):
            future.result(0.0003)
            return


WAYS: list[Callable[[Any], None]] = [
    by_result,
    by_callback,
    by_wait,
    by_as_completed,
    by_done,
    by_asyncio,
    by_threads,
    by_impatience,
]


@pytest.mark.parametrize("wait_for", WAYS)
@pytest.mark.parametrize("opens", ["before", "after"])
def test_an_answer_is_had_however_it_is_waited_for(client, methods, wait_for, opens) -> None:
    timers = []
    for _ in range(5):
        futures = [client.futures.wait(numbers(MB)) for _ in range(3)]
        if opens == "before":
            methods.gate.set()
        else:
            timers.append(threading.Timer(0.02, methods.gate.set))
            timers[-1].start()

        for future in futures:
            wait_for(future)

        assert [future.result(0) for future in futures] == [MB] * 3
        methods.gate.clear()
    for timer in timers:
        timer.join()


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
    for _ in waiting:
        assert methods.entered.acquire(timeout=20)

    assert client.futures.open().result(20)

    assert [future.result(20) for future in waiting] == [MB] * 3 * MAX_CALLS
    assert client.stats().connections <= MAX_CALLS + 1


@pytest.fixture
def no_tick(monkeypatch) -> None:
    """No answer is read but by the thread that asks for it; and the poller does not end by itself."""
    monkeypatch.setattr(answer_poller, "_TICK_S", 60.0)
    monkeypatch.setattr(answer_poller, "_IDLE_S", 60.0)


def test_an_answer_that_has_come_is_had_without_waiting(client, no_tick) -> None:
    future = client.futures.total(numbers(MB))
    connection = until(lambda: future.connection)
    assert select.select([connection.sock], [], [], 20)[0]

    assert future.result(0) == int(numbers(MB).sum())


def test_the_segment_of_a_call_that_was_answered_serves_the_call_of_another_client(
    serve, connect, short_directory, no_tick
) -> None:
    array = np.ones(4 * MB, np.uint8)
    for i in range(2):
        serve(f"unix:{short_directory}/{i}", total=lambda array: int(array.sum()))
    first, second = (connect(f"unix:{short_directory}/{i}") for i in range(2))

    futures = [first.futures.total(array)]
    connection = until(lambda: futures[0].connection)
    assert select.select([connection.sock], [], [], 20)[0]
    until(lambda: all(segment.is_returned for segment in pool._segments))
    futures.append(second.futures.total(array))

    assert n_open() == 1
    assert [future.result(20) for future in futures] == [4 * MB] * 2


def test_calls_one_after_the_other_do_not_each_wake_the_poller(
    client, no_tick, monkeypatch
) -> None:
    monkeypatch.setattr(ShmCalls, "_on_tick", lambda *_: False)  # they are done by then
    for _ in range(2):
        client.futures.total(numbers(MB)).result(20)
    poller = client._channel.connections.get_shm_calls()._poller
    until(lambda: poller.is_ticking)
    monkeypatch.setattr(poller, "wake", pytest.fail)

    client.futures.total(numbers(MB)).result(20)


def test_an_answer_that_nobody_keeps_is_gone_at_once(client, no_tick) -> None:
    future = client.futures.echo(numbers(MB))
    future.add_done_callback(lambda _: None)  # so the poller reads it
    until(lambda future=future: future.is_completed)
    kept = weakref.ref(future)

    del future

    until(lambda: kept() is None, 20)
    assert [each for each in threading.enumerate() if "courier-answers" in each.name]


# Ends before the answer.


class Claim:
    """A lock; when it is taken for the first time, something happens before the thread goes on."""

    def __init__(self, lock: Any, then: Callable[[], None]) -> None:
        self._lock, self._then = lock, [then]

    def acquire(self, blocking: bool = True) -> bool:
        has_it = self._lock.acquire(blocking)
        if has_it and self._then:
            self._then.pop()()
        return has_it

    def release(self) -> None:
        self._lock.release()


def test_a_call_that_is_cancelled_as_a_thread_begins_to_read_leaves_no_connection(
    client, methods
) -> None:
    future = client.futures.wait(numbers(MB))
    assert methods.entered.acquire(timeout=20)
    canceller = threading.Thread(target=future.cancel)

    def cancel() -> None:
        canceller.start()
        canceller.join(0.3)  # it may have to wait for this thread

    future.claim.acquire()
    future.claim = Claim(future.claim, cancel)
    future.claim._lock.release()

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
    assert methods.entered.acquire(timeout=20)
    until(lambda: asked.connection).try_receive = interrupt
    with pytest.raises(KeyboardInterrupt):
        asked.done()
    assert isinstance(asked.exception(20), courier.OutcomeUnknown)

    release = SocketChannel.release_connection
    monkeypatch.setattr(
        SocketChannel, "release_connection", lambda *args: release(*args) or interrupt()
    )
    methods.gate.set()
    read = client.futures.wait(numbers(MB))
    until(lambda: read.connection)
    with pytest.raises(KeyboardInterrupt):
        read.result(20)
    assert read.cancelled()
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
    methods.gate.set()
    assert client.futures.total(numbers(MB)).result(20) == int(numbers(MB).sum())


def test_cancelling_a_large_call_releases_the_threads_that_wait_for_it(client, methods) -> None:
    client.futures.echo(numbers(MB)).result(20)
    future = client.futures.is_gone(numbers(MB))
    assert methods.entered.acquire(timeout=20)
    with ThreadPoolExecutor(2) as threads:
        waits = [threads.submit(future.result, 20) for _ in range(2)]

        assert future.cancel()

        for wait in waits:
            with pytest.raises(concurrent.futures.CancelledError):
                wait.result(20)
    until(lambda: methods.ran == ["gone"])
    assert future.cancelled()


def test_a_large_call_that_was_cancelled_in_time_does_not_run(
    python, connect, unix_address
) -> None:
    client = connect(unix_address)
    with running(python, unix_address) as server:
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
    for _ in futures:
        assert methods.entered.acquire(timeout=20)
    with ThreadPoolExecutor(1) as threads:
        waits = threads.submit(futures[0].exception, 20)

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


def test_large_futures_wait_for_a_server_and_for_the_next_one(
    serve, connect, unix_address, methods
) -> None:
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


def test_a_server_that_stops_sends_back_what_it_has_not_begun(
    serve, connect, unix_address, methods
) -> None:
    client = connect(unix_address)
    server = serve(unix_address, total=methods.total, wait=methods.wait)
    futures = [client.futures.wait(numbers(MB)) for _ in range(2)]
    for _ in futures:
        assert methods.entered.acquire(timeout=20)
    client.futures.total(numbers(MB)).result(20)

    stopper = threading.Thread(target=server.stop, args=(20,))
    stopper.start()
    until(lambda: server._core.is_stopping)
    late = client.futures.total(np.full(MB, 2, np.uint8))
    methods.gate.set()
    stopper.join()
    serve(unix_address, total=methods.total)

    assert [future.result(20) for future in futures] == [MB] * 2
    assert late.result(20) == 2 * MB


def test_large_futures_in_flight_when_the_server_is_killed_have_an_unknown_outcome(
    python, connect, unix_address
) -> None:
    client = connect(unix_address)
    with running(python, unix_address) as server:
        client.futures.echo(numbers(MB)).result(20)
        read, watched = (client.futures.hang(numbers(MB)) for _ in range(2))
        watched.add_done_callback(lambda _: None)
        with pytest.raises(TimeoutError):
            read.result(0.2)
        os.kill(server.pid, signal.SIGKILL)

        for future in (read, watched):
            assert isinstance(future.exception(20), courier.OutcomeUnknown)


def test_what_may_run_twice_is_made_again_with_the_arguments_that_it_had(
    python, connect, unix_address, tmp_path
) -> None:
    client = connect(unix_address).with_options(idempotent=True)
    with running(python, unix_address):
        client.futures.echo(numbers(MB)).result(20)
        future = client.futures.overwrite_and_die_once(numbers(MB), str(tmp_path / "died"))
        until((tmp_path / "died").exists)
    with running(python, unix_address):
        assert future.result(20) == int(numbers(MB).sum())


def test_a_fork_leaves_large_futures_to_the_parent(client, methods) -> None:
    futures = [client.futures.wait(numbers(MB)) for _ in range(2)]
    for _ in futures:
        assert methods.entered.acquire(timeout=20)

    pid = os.fork()
    if pid == 0:
        os._exit(client.stats().connections)
    _, status = os.waitpid(pid, 0)
    methods.gate.set()

    assert os.waitstatus_to_exitcode(status) == 0
    assert [future.result(20) for future in futures] == [MB] * 2


def test_large_futures_meet_faults_as_others_do(client) -> None:
    survived = 0
    with Faults(seed=5, drop_request=0.1, drop_response=0.1, cut=0.1):
        for i in range(60):
            with contextlib.suppress(courier.OutcomeUnknown):
                result = client.futures.echo(numbers(MB, first=i)).result(20)
                assert np.array_equal(result, numbers(MB, first=i))
                survived += 1
        courier.close(client)

    assert 10 < survived < 60
    assert np.array_equal(client.futures.echo(numbers(MB)).result(20), numbers(MB))


def test_what_has_no_room_in_shared_memory_goes_through_the_socket(client, monkeypatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(1, "not in this container")

    monkeypatch.setattr(os, "memfd_create", refuse)

    assert client.futures.total(numbers(MB)).result(20) == int(numbers(MB).sum())
    assert n_open() == 0


def test_large_futures_that_cannot_be_mapped_go_through_the_socket(
    python, connect, unix_address
) -> None:
    client = connect(unix_address)
    with running(python, unix_address):
        client.futures.total(numbers(MB)).result(20)
        client.futures.echo(1).result(20)
        client.limit_descriptors(4)  # another segment cannot be received

        big = numbers(3 * MB)
        for _ in range(3):
            assert client.futures.total(big).result(20) == int(big.sum())


def test_threads_that_make_large_futures_do_not_mix_them(client) -> None:
    def call(first: int) -> bool:
        arrays = [numbers(300_000 + 7 * first + i, first=first + i) for i in range(15)]
        futures = [client.futures.echo(array) for array in arrays]
        found = [future.result(20) for future in futures]
        return all(np.array_equal(a, b) for a, b in zip(found, arrays, strict=True))

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(call, range(16)))


def test_large_futures_go_through_the_socket_when_there_are_no_descriptors(
    client, monkeypatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(24, "too many open files")

    for kind, name in ((shm_calls, "AnswerPoller"), (answer_poller, "WakeupSocketpair")):
        with monkeypatch.context() as patch:
            patch.setattr(kind, name, refuse)
            future = client.futures.total(numbers(MB))
            assert future.result(20) == int(numbers(MB).sum())
    assert not client._channel.connections.get_shm_calls()._pending.calls


def test_the_first_large_future_learns_what_the_server_takes(connect, unix_address) -> None:
    server = courier.Server("small", address=unix_address, max_bytes=MB)
    server.bind("total", lambda array: int(array.sum()))
    server.start()
    try:
        client = connect(unix_address)

        for _ in range(2):
            with pytest.raises(courier.MessageTooLarge):
                client.futures.total(numbers(2 * MB)).result(20)
        assert client.futures.total(numbers(MB // 2)).result(20) > 0
        courier.close(client)
    finally:
        server.stop()


@pytest.mark.slow
def test_thousands_of_large_futures_leave_nothing_behind(client) -> None:
    def state() -> list[int]:
        gc.collect()
        return [len(os.listdir("/proc/self/fd")), threading.active_count()]

    array = numbers(300_000)

    def call(n: int) -> None:
        for i in range(n):
            futures = [client.futures.echo(array[i + k :]) for k in range(6)]
            futures.pop(1).cancel()
            for future in futures:
                future.result(20)

    call(50)
    before = state()
    call(200)

    # Connections and segments come and go.
    until(lambda: all(now < was + 16 for now, was in zip(state(), before, strict=True)))
