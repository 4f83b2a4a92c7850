"""Iterators as arguments: streams from the client to the server."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import numpy as np
import pytest

from launchpad import courier
from launchpad.courier.client.shared_connection import SharedConnection
from launchpad.courier.client.stream import StreamCall
from launchpad.courier.server.serial_connection import SerialConnection
from launchpad.courier.server.stream_call import ServerStreamCall
from launchpad.courier.streams.receiver import WINDOW_ITEMS
from tests.courier.conftest import DEADLINE_S, in_background
from tests.helpers.calls import as_async
from tests.waiting import until


class Source:
    """Iterators that a client gives, and what has become of them."""

    def __init__(self) -> None:
        self.made = 0
        self.closed = threading.Event()
        self.threads: set[str] = set()

    def count(self, n: int | None = None) -> Iterator[int]:
        try:
            for i in itertools.count() if n is None else range(n):
                self.made += 1
                self.threads.add(threading.current_thread().name)
                yield i
        finally:
            self.closed.set()

    async def acount(self, n: int | None = None) -> AsyncIterator[int]:
        with contextlib.closing(self.count(n)) as items:
            for item in items:
                await asyncio.sleep(0)
                yield item


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture(params=["iterator", "async iterator"])
def count(request: pytest.FixtureRequest, source: Source) -> Callable[..., object]:
    return source.count if request.param == "iterator" else source.acount


def total(items: Iterator[int]) -> int:
    return sum(items)


async def atotal(items: AsyncIterator[int]) -> int:
    return sum([item async for item in items])


def first_of(items: Iterator[int]) -> int:
    return next(items)


def fail(items: Iterator[int]) -> None:
    raise ValueError(f"enough after {next(items)}")


def double(items: Iterator[Any]) -> Iterator[Any]:
    for item in items:
        yield item * 2


def one_then_two(gate: threading.Event) -> Iterator[int]:
    """Gives the 2 when the gate is open."""
    yield 1
    gate.wait()
    yield 2


async def adouble(items: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for item in items:
        yield item * 2


@pytest.fixture(params=["method", "coroutine method"])
def add_up(request: pytest.FixtureRequest) -> Callable[..., object]:
    return total if request.param == "method" else atotal


@pytest.mark.every_transport
def test_a_method_iterates_over_what_the_client_gives(client_of, count, add_up) -> None:
    client = client_of(add_up=add_up)

    assert client.add_up(count(1000)) == 499_500
    futures = [client.futures.add_up(count(100)) for _ in range(10)]
    assert [future.result(10) for future in futures] == [4950] * 10


def test_several_arguments_are_iterators_and_one_given_twice_is_one(client_of, source) -> None:
    client = client_of(
        pairs=lambda a, *, second, scale: [(x * scale, y) for x, y in zip(a, second, strict=False)]
    )
    items = iter(range(6))

    found = client.pairs(source.count(200), second=source.acount(200), scale=10)

    assert found == [(10 * i, i) for i in range(200)]
    assert client.pairs(items, second=items, scale=1) == [(0, 1), (2, 3), (4, 5)]


@pytest.mark.parametrize("is_async", [False, True])
def test_items_of_a_frame_do_not_wait_for_one_to_come(client_of, gate, is_async) -> None:
    def items() -> Iterator[int]:
        yield from range(50)
        gate.wait()
        yield 50

    async def aitems() -> AsyncIterator[int]:
        for i in range(50):
            yield i
        await asyncio.to_thread(gate.wait)
        yield 50

    def take(numbers: Iterator[int]) -> list[int]:
        first = [next(numbers) for _ in range(50)]
        gate.set()
        return first + list(numbers)

    client = client_of(take=take, call_timeout=20)

    assert client.take(aitems() if is_async else items()) == list(range(51))


def test_a_list_is_no_stream(client_of) -> None:
    client = client_of(kind=lambda value: type(value).__name__)

    assert client.kind([1, 2]) == "list"
    assert client.kind(iter([1, 2])) == "ArgumentStream"


# Back-pressure.


@pytest.mark.every_transport
def test_a_client_is_at_most_a_window_ahead_of_a_method(client_of, count, source, gate) -> None:
    def first_later(items: Iterator[int]) -> int:
        first = next(items)
        gate.wait()
        return first

    client = client_of(first_later=first_later)
    result = in_background(client.first_later, count())
    until(lambda: source.made >= WINDOW_ITEMS)
    time.sleep(0.1)
    made = source.made
    gate.set()

    assert result.result(10) == 0
    assert made <= WINDOW_ITEMS + 1


def test_nothing_is_made_for_a_method_that_asks_for_nothing(client_of, count, source) -> None:
    client = client_of(ignore=lambda items: "ignored")

    assert client.ignore(count()) == "ignored"
    assert source.made == 0


# Ends.


@pytest.mark.parametrize("n_read", [0, 1])
def test_sound_30_an_iterator_that_is_kept_says_so_when_read(client_of, n_read) -> None:
    kept: list[Any] = []

    def keep(items: Iterator[int]) -> list[int]:
        kept.append(items)
        return [next(items) for _ in range(n_read)]

    client = client_of(keep=keep)

    assert client.keep(iter(range(5))) == list(range(n_read))

    for _ in range(2):
        with pytest.raises(RuntimeError, match="kept, and read after its call had ended"):
            list(kept[0])


def test_sound_30_an_iterator_that_was_read_or_closed_is_at_its_end_later_too(client_of) -> None:
    kept: list[Any] = []

    def read(items: Iterator[int]) -> int:
        kept.append(items)
        return sum(items)

    def close(items: Any) -> None:
        kept.append(items)
        items.close()

    client = client_of(read=read, close=close)
    client.read(iter(range(5)))
    client.futures.close(iter(range(5))).result(20)

    assert [list(items) for items in kept] == [[], []]


def returns_early(client: Any, items: object, _: Source) -> None:
    assert client.first(items) == 0


def fails(client: Any, items: object, _: Source) -> None:
    with pytest.raises(ValueError, match="enough after 0"):
        client.fail(items)


def takes_too_long(client: Any, items: object, _: Source) -> None:
    with pytest.raises(courier.DeadlineExceeded):
        client.with_options(timeout_s=1.0).total(items)


def is_cancelled(client: Any, items: object, source: Source) -> None:
    future = client.futures.total(items)
    until(lambda: source.made > 100)
    assert future.cancel()
    assert future.cancelled()


def has_its_result_closed(client: Any, items: object, _: Source) -> None:
    for item in client.double(items):
        if item == 100:
            break


ENDS = [returns_early, fails, takes_too_long, is_cancelled, has_its_result_closed]


@pytest.mark.every_transport
@pytest.mark.parametrize("end", ENDS)
def test_an_iterator_is_closed_when_its_call(client_of, count, source, end) -> None:
    client = client_of(first=first_of, fail=fail, total=total, double=double)

    end(client, count(), source)

    assert source.closed.wait(DEADLINE_S)


def test_a_method_may_close_an_argument_and_go_on(client_of, count, source, gate) -> None:
    def first(items: Any) -> tuple[int, list[int]]:
        found = next(items)
        items.close()
        gate.wait()
        return found, list(items)

    result = in_background(client_of(first=first).first, count())

    assert source.closed.wait(10)
    assert not result.done()
    gate.set()
    assert result.result(10) == (0, [])


def test_an_answer_does_not_wait_for_an_iterator_that_blocks(client_of, gate) -> None:
    client = client_of(first=first_of)

    assert client.first(one_then_two(gate)) == 1


def test_an_async_iterator_that_waits_is_closed_all_the_same(client_of) -> None:
    closed = threading.Event()

    async def items():
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            closed.set()

    client = client_of(first=first_of)

    assert client.first(items()) == 1
    assert closed.wait(DEADLINE_S)

    async def main() -> int:
        closed.clear()
        first = await client.aio.first(items())
        await asyncio.to_thread(closed.wait, DEADLINE_S)
        return first

    assert asyncio.run(main()) == 1
    assert closed.is_set()


@pytest.mark.parametrize("is_async", [False, True])
def test_an_iterators_error_reaches_the_method_and_then_the_caller(client_of, is_async) -> None:
    seen: list[tuple[str, list[int]]] = []

    def learn(batches: Iterator[int]) -> int:
        try:
            return sum(batches)
        except LookupError as error:
            seen.append((str(error), list(batches)))  # a method may go on
            raise

    def batches() -> Iterator[int]:
        yield 1
        raise LookupError("batch 2 is missing")

    client = client_of(learn=learn)

    with pytest.raises(LookupError, match="batch 2") as caught:
        client.learn(as_async(batches)() if is_async else batches())
    assert "in learn" in str(caught.value.__cause__)
    assert 'raise LookupError("batch 2 is missing")' in str(caught.value.__cause__)
    assert seen == [("batch 2 is missing", [])]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_method_hears_that_its_caller_is_gone(serve, unix_address, gate, is_async) -> None:
    first_is_here = threading.Event()
    errors: queue.Queue[BaseException] = queue.Queue()

    def collect(items: Iterator[int]) -> None:
        try:
            for _ in items:
                first_is_here.set()
        except courier.StreamBroken as error:
            errors.put(error)

    async def collect_async(items: AsyncIterator[int]) -> None:
        try:
            async for _ in items:
                first_is_here.set()
        except asyncio.CancelledError as error:
            errors.put(error)
            raise

    serve(unix_address, collect=collect_async if is_async else collect)
    with courier.Client[Any](unix_address) as client:
        client.futures.collect(one_then_two(gate))
        assert first_is_here.wait(10)

    error = errors.get(timeout=DEADLINE_S)
    assert is_async or "is gone, after 1 items" in str(error)


def test_a_stop_gives_the_method_its_grace_to_read_on(serve, connect, address, gate) -> None:
    server = serve(address, collect=list)
    result = in_background(connect(address).collect, one_then_two(gate))
    assert gate.begun.wait(10)

    stopped = in_background(server.stop, 20)
    gate.set()

    assert result.result(20) == [1, 2]
    stopped.result(20)


def test_after_the_grace_the_caller_is_told(serve, connect, address, gate, source) -> None:
    server = serve(address, collect=lambda items: next(items) or gate.wait())
    result = in_background(connect(address).collect, source.count())
    assert gate.begun.wait(10)
    server.stop(0.05)

    with pytest.raises(courier.OutcomeUnknown):
        result.result(10)
    assert source.closed.wait(DEADLINE_S)


def test_a_call_that_was_not_sent_leaves_the_iterator_as_it_is(connect, address, source) -> None:
    items = source.count(5)

    with pytest.raises(courier.NotSent):
        connect(address, wait_for_ready=False).total(items)

    assert list(items) == [0, 1, 2, 3, 4]


# Both ways at once.


def test_what_waits_is_sent_although_credit_was_sent_before_it(client_of, gate) -> None:
    def rows(numbers: Iterator[int]) -> Iterator[int]:
        yield next(numbers)
        until(lambda: numbers._incoming.n_items == WINDOW_ITEMS)
        yield from range(1, 40)
        for _ in range(WINDOW_ITEMS // 2 - 1):
            next(numbers)
        yield from range(40, 45)
        gate.wait()

    client = client_of(rows=rows, call_timeout=20)
    stream = client.rows(itertools.count())

    assert [next(stream) for _ in range(45)] == list(range(45))
    gate.set()
    stream.close()


@pytest.mark.every_transport
@pytest.mark.parametrize("is_async", [False, True])
def test_both_sides_may_make_many_large_items_before_they_take_any(client_of, is_async) -> None:
    """Neither may wait for the other to read while the other waits for it."""

    def burst(items):
        for i in range(20):
            yield np.full(125_000, i, np.int64)
        yield sum(int(item[0]) for item in items)

    async def aburst(items):
        for i in range(20):
            yield np.full(125_000, i, np.int64)
        found = 0
        async for item in items:
            found += int(item[0])
        yield found

    client = client_of(burst=aburst if is_async else burst)

    *firsts, last = client.burst(np.full(125_000, i, np.int64) for i in range(20))

    assert [int(first[0]) for first in firsts] == list(range(20))
    assert last == 190


@pytest.mark.every_transport
@pytest.mark.parametrize("is_async", [False, True])
def test_a_dialogue_in_which_each_question_depends_on_the_last_answer(client_of, is_async) -> None:
    client = client_of(double=adouble if is_async else double)
    given: queue.Queue[int] = queue.Queue()
    given.put(1)

    received = []
    for answer in client.double(iter(lambda: given.get(timeout=10), 1 << 30)):
        received.append(answer)
        given.put(answer)

    assert received == [1 << i for i in range(1, 31)]


def test_an_upload_goes_on_although_the_result_is_not_read(client_of, source) -> None:
    def relay(items: Iterator[int]) -> Iterator[object]:
        yield "begun"
        yield sum(items)

    client = client_of(relay=relay)

    stream = client.relay(source.count(1000))

    assert source.closed.wait(10)  # all of it is there, and not an item of the result was taken
    assert list(stream) == ["begun", 499_500]


def test_a_method_may_return_its_argument(client_of, source) -> None:
    client = client_of(echo=lambda items: items)

    assert list(client.echo(source.count(500))) == list(range(500))


def test_a_stream_may_be_the_argument_of_another(
    serve, connect, address, other_address, source
) -> None:
    serve(address, rows=source.count)
    serve(other_address, total=total)

    assert connect(other_address).total(connect(address).rows(1000)) == 499_500


@pytest.mark.slow
def test_many_uploads_at_once_do_not_need_a_thread_each_of_a_small_pool(client_of, gate) -> None:
    """All methods wait for items, and the calls that release them still get through."""
    client = client_of(size=2, total=total, pid=threading.get_native_id)
    futures = [client.futures.total(one_then_two(gate)) for _ in range(50)]
    client.pid()
    gate.set()

    assert [future.result(20) for future in futures] == [3] * 50


# Futures and event loops.


def test_an_event_loop_talks_both_ways_and_runs_its_own_iterators(client_of, source) -> None:
    client = client_of(double=adouble, add_up=atotal)

    async def main() -> tuple[int, list[int]]:
        added = await client.aio.add_up(source.acount(500))
        return added, [item async for item in client.aio.double(source.acount(500))]

    assert asyncio.run(main()) == (124_750, [2 * i for i in range(500)])
    assert source.threads == {threading.current_thread().name}


def test_items_of_arguments_are_counted(client_of, source) -> None:
    client = client_of(total=total)

    client.total(source.count(100))
    counts = client._channel.counts[b"total"]

    assert (counts.started, sum(counts.buckets), counts.errors, counts.items) == (1, 1, 0, 100)


# One call after the other, on one connection.


@pytest.mark.every_transport
def test_sound_01_calls_with_streams_of_both_kinds_may_alternate(client_of, source) -> None:
    client = client_of(add_up=total, first=first_of, rows=lambda n: (bytes(1000) for _ in range(n)))

    for _ in range(50):
        assert client.add_up(iter(range(100))) == 4950
        assert sum(map(len, client.rows(50))) == 50_000
        assert client.first(source.count()) == 0


@pytest.mark.parametrize("add_up", [total, atotal])
def test_sound_01_streams_do_not_take_those_of_the_next_call_for_theirs(
    unix_client_of, gate, monkeypatch, add_up
) -> None:
    """A client may have the answer, and call again, before the thread that wrote it goes on."""
    ended = SerialConnection._end_streams

    def end_late(connection: SerialConnection, streams: ServerStreamCall) -> None:
        if streams.pump is None:  # a call with arguments only
            gate.wait()
        ended(connection, streams)

    monkeypatch.setattr(SerialConnection, "_end_streams", end_late)
    client = unix_client_of(
        add_up=add_up, rows=lambda n: iter(range(n)), echo=lambda x: x, call_timeout=60
    )

    assert client.add_up(iter(range(100))) == 4950
    assert list(client.rows(100)) == list(range(100))
    assert client.add_up(iter(range(100))) == 4950
    assert client.echo(7) == 7
    assert client.stats().connections == 1
    left = client.rows(10_000)
    assert next(left) == 0  # and it is left there, while it is still referenced
    assert client.add_up(iter(range(100))) == 4950
    gate.set()
    assert list(client.rows(100)) == list(range(100))


def test_sound_01_nothing_of_an_argument_follows_the_end_of_the_result(unix_client_of) -> None:
    """The next call on the connection would take it for its answer."""

    def dialogue(items: Iterator[int]) -> Iterator[object]:
        try:
            yield next(items)
            yield threading.Lock()  # which cannot be pickled: the stream ends, and then we are closed
        finally:
            items.close()

    client = unix_client_of(dialogue=dialogue, echo=lambda x: x, call_timeout=60)

    for _ in range(30):
        found = client.dialogue(itertools.count())
        assert next(found) == 0
        with pytest.raises(Exception, match="lock"):
            next(found)
        assert client.echo(7) == 7


def test_sound_01_a_connection_that_a_cancel_has_closed_is_not_kept(unix_client_of, gate) -> None:
    client = unix_client_of(answer=lambda _: gate.wait())
    future = client.futures.answer(iter([1]))
    gate.begun.wait()

    future.cancel()
    gate.set()

    until(lambda: not [t for t in threading.enumerate() if t.name.startswith("courier-future-")])
    kept = client._channel.connections.idle_connections
    assert [connection for connection in kept if connection.sock.fileno() < 0] == []


def test_sound_01_a_call_that_is_closed_does_not_leave_its_connection_to_others_while_it_runs(
    unix_client_of, monkeypatch
) -> None:
    """Something of the call may arrive in the very moment in which it is closed."""
    begun, goes_on, ended = threading.Event(), threading.Event(), threading.Event()
    closed = SharedConnection.close

    def add_up(items: Iterator[int]) -> int:
        try:
            total = next(items)
            begun.set()
            goes_on.wait()
            return total + sum(items)
        except courier.StreamBroken:
            ended.set()
            raise

    def close_late(connection: SharedConnection) -> None:
        sender = connection._call._senders[1]
        goes_on.set()
        until(lambda: connection.is_over or sender._outgoing.items._allowed_items > WINDOW_ITEMS)
        closed(connection)

    client = unix_client_of(add_up=add_up, echo=lambda x: x, call_timeout=60)
    future = client.futures.add_up(itertools.count())
    assert begun.wait(60)

    with monkeypatch.context() as patch:
        patch.setattr(SharedConnection, "close", close_late)
        # Else the caller's thread, if it is first to notice, ends the one that would read on.
        patch.setattr(StreamCall, "_end_senders", lambda call: None)
        assert future.cancel()

    assert ended.wait(60)
    assert client.echo(7) == 7
