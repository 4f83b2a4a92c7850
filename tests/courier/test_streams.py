"""Methods that return iterators: streams that are closed from either side; see also test_stream_parts.py."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from launchpad import courier
from launchpad.courier.streams.receiver import WINDOW_ITEMS
from tests.courier.conftest import exit_code_of_child, in_background
from tests.helpers.calls import as_async
from tests.waiting import until

SOON_S = 10.0  # within which a server's iterator is closed, on a busy machine too


class Numbers:
    """Generators of numbers, and what has become of them."""

    def __init__(self) -> None:
        self.made = 0
        self.closed = threading.Event()

    def count(self, n: int | None = None) -> Iterator[int]:
        try:
            for i in itertools.count() if n is None else range(n):
                self.made += 1
                yield i
        finally:
            self.closed.set()

    def stalls_at(self, n: int) -> int:
        """Waits until n were made, and then no more for a while; returns how many."""
        until(lambda: self.made >= n)
        time.sleep(0.1)
        return self.made


@pytest.fixture
def numbers() -> Numbers:
    return Numbers()


@pytest.fixture(params=["generator", "async generator"])
def count(request: pytest.FixtureRequest, numbers: Numbers) -> Callable[..., object]:
    """A method that counts: both kinds of generators are streams."""
    return numbers.count if request.param == "generator" else as_async(numbers.count)


def append_all(stream: Iterator[int], items: list[int]) -> None:
    """One by one, so that an exception does not lose those before it."""
    for item in stream:
        items.append(item)


# What arrives.


@pytest.mark.every_transport
def test_the_items_of_a_generator_arrive_in_their_order(client_of, count) -> None:
    client = client_of(count=count)

    for n in (1000, 0):
        assert list(client.count(n)) == list(range(n))


def test_pythons_own_iterators_and_those_declared_are_streams_also_from_a_coroutine(
    client_of, numbers, tmp_path
) -> None:
    file = tmp_path / "lines"
    file.write_text("one\ntwo\n")
    opened = []

    def lines():
        opened.append(file.open())
        return courier.stream(opened[0])

    async def later(n: int):
        return as_async(numbers.count)(n)

    client = client_of(texts=lambda: map(str, range(3)), lines=lines, later=later)

    assert list(client.texts()) == ["0", "1", "2"]
    assert list(client.lines()) == ["one\n", "two\n"]
    assert list(client.later(100)) == list(range(100))
    until(lambda: opened[0].closed)


@pytest.mark.every_transport
def test_two_streams_and_calls_of_one_client_do_not_disturb_each_other(client_of, numbers) -> None:
    client = client_of(count=numbers.count, pid=os.getpid)

    pairs = []
    for pair in zip(client.count(500), client.count(500), strict=True):
        pairs.append(pair)
        assert client.pid() == os.getpid()

    assert pairs == [(i, i) for i in range(500)]


@pytest.mark.every_transport
def test_arrays_arrive_whole_private_and_writable(client_of) -> None:
    """The generator may even use one array for all its items."""

    def batches(n: int):
        array = np.empty(300_000, np.float32)
        for i in range(n):
            array[:] = i
            yield {"i": i, "array": array}

    client = client_of(batches=batches)

    for i, batch in enumerate(client.batches(30)):
        assert batch["i"] == i
        assert (batch["array"] == i).all()
        batch["array"] += 1


@pytest.mark.parametrize("is_async", [False, True])
def test_items_that_are_made_quickly_do_not_wait_for_a_slow_one(client_of, gate, is_async) -> None:
    def rows():
        yield from range(50)
        gate.wait()
        yield 50

    async def arows():
        for i in range(50):
            yield i
        await asyncio.to_thread(gate.wait)
        yield 50

    stream = client_of(rows=arows if is_async else rows, call_timeout=10).rows()

    first = [next(stream) for _ in range(50)]
    gate.set()

    assert first == list(range(50))
    assert list(stream) == [50]


def test_several_threads_share_the_items_of_a_stream(client_of, count) -> None:
    stream = client_of(count=count).count(2000)

    taken = [share.result(20) for share in [in_background(list, stream) for _ in range(4)]]

    assert sorted(itertools.chain(*taken)) == list(range(2000))
    assert all(each == sorted(each) for each in taken)


@pytest.mark.every_transport
def test_f35_a_server_is_at_most_a_window_ahead_of_the_consumer(client_of, count, numbers) -> None:
    stream = client_of(count=count).count()

    before = numbers.stalls_at(WINDOW_ITEMS)
    for _ in range(WINDOW_ITEMS):
        next(stream)
    after = numbers.stalls_at(WINDOW_ITEMS + WINDOW_ITEMS // 2)

    assert before == WINDOW_ITEMS
    assert after <= 2 * WINDOW_ITEMS
    stream.close()


@pytest.mark.slow
def test_many_streams_that_are_not_read_take_no_threads(client_of) -> None:
    """Their items fill the sockets: neither credit nor room in a socket is waited for by a thread."""
    arrived = threading.Semaphore(0)

    def batches():
        arrived.release()
        while True:
            yield np.zeros(100_000)

    client = client_of(name="host", batches=batches)

    streams = [client.batches() for _ in range(100)]
    for _ in streams:
        assert arrived.acquire(timeout=20)
    until(lambda: sum(t.name.startswith("host-") for t in threading.enumerate()) <= 20)
    firsts = {stream: next(stream).nbytes for stream in streams[::20]}

    assert set(firsts.values()) == {800_000}
    for stream in streams:
        stream.close()


# Closed by the consumer.


def leave_the_loop(client: Any) -> None:
    for item in client.count():
        if item == 100:
            break


def leave_the_loop_of_a_coroutine(client: Any) -> None:
    async def main() -> None:
        async for item in client.aio.count():
            if item == 100:
                break

    asyncio.run(main())
    gc.collect()


def leave_its_block(client: Any) -> None:
    with client.count() as stream:
        assert next(stream) == 0
    assert list(stream) == []
    stream.close()


def close_the_client(client: Any) -> None:
    stream = client.count()
    next(stream)
    courier.close(client)
    with pytest.raises(courier.StreamBroken, match="was closed"):
        list(stream)


@pytest.mark.every_transport
@pytest.mark.parametrize(
    "end", [leave_the_loop, leave_the_loop_of_a_coroutine, leave_its_block, close_the_client]
)
def test_a_generator_is_closed_when_its_consumer_ends(client_of, count, numbers, end) -> None:
    end(client_of(count=count))

    assert numbers.closed.wait(SOON_S)


def test_f35_a_stream_dropped_before_its_first_item_is_closed(client_of, count, numbers) -> None:
    stream = client_of(count=count).count()
    until(lambda: numbers.made)

    del stream
    gc.collect()

    assert numbers.closed.wait(SOON_S)


def test_a_slow_generator_is_closed_soon_after_its_consumer_has_gone(client_of, numbers) -> None:
    """It makes an item every 0.3 s, and each of them finds room in the socket."""

    def slow():
        for i in numbers.count():
            time.sleep(0.3)
            yield i

    stream = client_of(slow=slow).slow()
    next(stream)

    stream.close()

    assert numbers.closed.wait(SOON_S)


def test_another_thread_may_close_a_stream_while_one_waits_for_an_item(client_of, gate) -> None:
    def blocked():
        yield 1
        gate.wait()

    stream = client_of(blocked=blocked).blocked()
    items: list[int] = []
    reading = in_background(append_all, stream, items)
    until(lambda: items)

    stream.close()

    reading.result(10)
    assert items == [1]


def test_what_a_finally_raises_is_shown_and_changes_nothing(client_of, monkeypatch) -> None:
    shown: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: shown.append(args.exc_value))

    def rows():
        try:
            yield from itertools.count()
        finally:
            raise ValueError("in finally")

    client = client_of(rows=rows, pid=os.getpid)

    next(client.rows())
    until(lambda: shown)

    assert "in finally" in str(shown[0])
    assert client.pid() == os.getpid()


# Ended by the server.


@pytest.mark.every_transport
def test_an_exception_follows_the_items_before_it_as_its_own_type(client_of) -> None:
    def rows():
        yield from range(200)
        raise LookupError("row 200 is missing")

    client = client_of(rows=rows, arows=as_async(rows))

    for stream in (client.rows(), client.arows()):
        items: list[int] = []
        with pytest.raises(LookupError, match="row 200") as caught:
            append_all(stream, items)
        assert items == list(range(200))
        assert 'raise LookupError("row 200 is missing")' in str(caught.value.__cause__)
        assert list(stream) == []


class OnlyThere:
    """Unpickles for nobody."""

    def __reduce__(self):
        return _refuse, ()


def _refuse() -> None:
    raise ImportError("not here")


@pytest.mark.every_transport
@pytest.mark.parametrize(
    ("bad", "error", "words", "notes"),
    [
        (threading.Lock(), courier.RemoteError, "lock", ""),
        (OnlyThere(), ImportError, "not here", "an item of the stream 'rows'"),
    ],
)
def test_an_item_that_cannot_be_pickled_or_unpickled_ends_and_closes_the_stream(
    client_of, numbers, bad, error, words, notes
) -> None:
    def rows():
        for i in numbers.count():
            yield i if i < 30 else bad

    stream = client_of(rows=rows).rows()
    items: list[int] = []

    with pytest.raises(error, match=words) as caught:
        append_all(stream, items)

    assert items == list(range(30))
    assert notes in "".join(getattr(caught.value, "__notes__", []))
    assert list(stream) == []
    assert numbers.closed.wait(SOON_S)


def test_an_item_that_is_more_than_the_client_takes_is_an_error(serve, connect, address) -> None:
    serve(address, rows=lambda: iter([b"small", bytes(2_000_000)]))
    stream = connect(address, max_bytes=1_000_000).rows()

    assert next(stream) == b"small"
    with pytest.raises(courier.MessageTooLarge, match="2000"):
        next(stream)


def test_a_stop_gives_streams_their_grace(serve, connect, address, count) -> None:
    server = serve(address, count=count)
    stream = connect(address).count(1000)
    items = [next(stream)]

    stop = in_background(server.stop, 20)
    items += stream

    stop.result(20)
    assert items == list(range(1000))


@pytest.mark.every_transport
def test_after_the_grace_a_stop_closes_streams_also_those_that_nobody_reads(
    serve, connect, address, count, numbers
) -> None:
    unread = Numbers()

    def batches():
        for _ in unread.count():
            yield np.zeros(100_000)  # of which few find room in a socket

    server = serve(address, count=count, batches=batches)
    client = connect(address)
    stream, batches_stream = client.count(), client.batches()
    next(stream)
    until(lambda: unread.made)

    server.stop(0.05)

    assert numbers.closed.wait(SOON_S)
    assert unread.closed.wait(SOON_S)
    with pytest.raises(courier.StreamBroken):
        list(stream)
    batches_stream.close()


# Deadlines.


@pytest.mark.slow
def test_the_timeout_limits_each_wait_and_neither_the_whole_nor_the_stream(client_of, gate) -> None:
    def rows():
        for i in range(4):
            time.sleep(0.5)
            yield i
        gate.wait()
        yield 4

    stream = client_of(rows=rows).with_options(timeout_s=1.5).rows()

    assert [next(stream) for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(courier.DeadlineExceeded, match=r"no item within 1\.5 s"):
        next(stream)
    gate.set()
    assert list(stream) == [4]


@pytest.mark.slow
def test_a_deadline_limits_reading_for_a_call(serve, connect, address, other_address, gate) -> None:
    def rows():
        yield 1
        gate.wait()

    serve(other_address, rows=rows)
    rows_client = connect(other_address)
    errors: list[BaseException] = []

    def front() -> None:
        try:
            list(rows_client.rows())
        except courier.DeadlineExceeded as error:
            errors.append(error)
            raise

    serve(address, front=front)

    with pytest.raises(courier.CourierError, match=r"deadline|did not answer"):  # whose comes first
        connect(address, call_timeout=1.0).front()
    until(lambda: errors)
    assert "before the deadline of the call" in str(errors[0])


@pytest.mark.slow
def test_what_a_generator_calls_has_the_time_that_its_consumer_waits_for_an_item(
    serve, connect, address, other_address, gate
) -> None:
    """A fresh one for each: the third item comes later than any one limit would allow."""
    serve(other_address, nap=lambda: time.sleep(0.6), hang=gate.wait)
    nested = connect(other_address)

    def rows():
        for i in range(3):
            nested.nap()
            yield i
        nested.hang()

    serve(address, rows=rows)
    stream = connect(address, call_timeout=1.5).rows()

    assert [next(stream) for _ in range(3)] == [0, 1, 2]
    with pytest.raises((courier.DeadlineExceeded, courier.RemoteError)):
        next(stream)


# Futures and event loops.


def test_a_stream_whose_future_was_cancelled_is_never_begun(client_of, gate, numbers) -> None:
    client = client_of(rows=lambda: gate.wait() and numbers.count(), pid=os.getpid)
    future = client.futures.rows()

    future.cancel()
    gate.set()
    for _ in range(10):
        client.futures.pid().result(10)

    assert numbers.made == 0


@pytest.mark.every_transport
def test_an_event_loop_iterates_over_a_stream(client_of, count) -> None:
    client = client_of(count=count)

    async def main() -> None:
        assert [item async for item in client.aio.count(1000)] == list(range(1000))
        async with await client.aio.count(100) as stream:
            assert [item async for item in stream] == list(range(100))

    asyncio.run(main())


def test_an_event_loop_runs_on_while_streams_wait(client_of, gate) -> None:
    def rows():
        yield 1
        gate.wait()
        yield 2

    client = client_of(rows=rows)

    async def main() -> list[list[int]]:
        readers = [asyncio.create_task(read_async(client.aio.rows())) for _ in range(20)]
        for _ in range(10):
            await asyncio.sleep(0.01)
        gate.set()
        return await asyncio.gather(*readers)

    assert asyncio.run(main()) == [[1, 2]] * 20


async def read_async(call) -> list[int]:
    return [item async for item in call]


def test_errors_and_deadlines_reach_coroutines(client_of, gate) -> None:
    is_awaited = threading.Event()

    def rows(error: Exception | None):
        yield 1
        if error is None:
            gate.wait()
        is_awaited.wait(SOON_S)
        raise error

    client = client_of(rows=rows)

    async def read(client: Any, error: Exception | None) -> None:
        async for _ in client.aio.rows(error):
            asyncio.get_running_loop().call_later(0.05, is_awaited.set)

    for error in (LookupError("row 2"), TimeoutError("of the method")):
        with pytest.raises(type(error), match=str(error.args[0])):
            asyncio.run(read(client, error))
    with pytest.raises(courier.DeadlineExceeded, match="no item"):
        asyncio.run(read(client.with_options(timeout_s=0.1), None))


def test_an_aio_call_of_a_method_without_stream_cannot_be_iterated_over(client_of) -> None:
    client = client_of(pid=os.getpid)

    with pytest.raises(TypeError, match="'pid' returned a int, which is not a stream"):
        asyncio.run(read_async(client.aio.pid()))


def test_a_stream_counts_as_one_call_with_its_items(client_of) -> None:
    client = client_of(rows=lambda: iter([bytes(1000)] * 100))

    list(client.rows())
    counts = client._channel.counts[b"rows"]

    assert (counts.started, sum(counts.buckets), counts.errors, counts.items) == (1, 1, 0, 100)
    assert counts.bytes_in > 100_000


def test_a_stream_inside_of_an_argument_is_refused_with_a_reason(client_of, numbers) -> None:
    client = client_of(count=numbers.count, echo=lambda value: value)
    stream = client.count(5)

    with pytest.raises(TypeError, match="give it to a call as an argument of its own"):
        client.echo([stream])
    assert list(stream) == [0, 1, 2, 3, 4]


def test_a_forked_child_leaves_its_parents_streams_alone(unix_client_of, numbers) -> None:
    stream = unix_client_of(count=numbers.count).count(1000)
    first = next(stream)

    def meddle() -> int:
        with pytest.raises(courier.StreamBroken):
            next(stream)
        stream.close()
        return 0

    assert exit_code_of_child(meddle) == 0
    assert [first, *stream] == list(range(1000))
