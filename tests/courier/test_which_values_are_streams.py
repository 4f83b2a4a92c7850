"""Which arguments and results are taken apart into items, and which travel whole."""

from __future__ import annotations

import array
import collections
import csv
import io
import itertools
import pickle
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from launchpad import courier
from launchpad.courier.codec.iterators import is_stream
from tests.courier.conftest import DEADLINE_S
from tests.helpers.calls import as_async
from tests.waiting import until


class Sampler:
    """An object that has `__next__` and more to it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.drawn = 0
        self.is_closed = False

    def __next__(self) -> int:
        if self.drawn == 3:
            raise StopIteration
        self.drawn += 1
        return self.seed + self.drawn

    def close(self) -> None:
        self.is_closed = True


class AsyncSampler:
    def __init__(self) -> None:
        self.drawn = 0
        self.is_closed = False

    async def __anext__(self) -> int:
        if self.drawn == 3:
            raise StopAsyncIteration
        self.drawn += 1
        return self.drawn

    async def aclose(self) -> None:
        self.is_closed = True


class Rows:
    """An iterable."""

    def __iter__(self) -> Iterator[int]:
        yield from (1, 2, 3)


def kind_of(value: Any) -> str:
    return type(value).__name__


@pytest.mark.parametrize(
    "iterator",
    [
        (x for x in "ab"),
        map(str, "ab"),
        zip("ab", "cd", strict=True),
        filter(None, "ab"),
        enumerate("ab"),
        reversed("ab"),
        iter([1]),
        iter((1,)),
        iter({1: 2}),
        iter({1: 2}.items()),
        iter({1}),
        iter("a"),
        iter(b"a"),
        iter(bytearray(b"a")),
        iter(range(3)),
        iter(range(1 << 70)),
        reversed([1]),
        reversed({1: 2}),
        iter(int, 1),
        iter(memoryview(b"ab")),
        iter(collections.deque([1])),
        iter(collections.OrderedDict(a=1)),
        iter(array.array("i", [1])),
        itertools.count(),
        itertools.chain([1], [2]),
        itertools.batched([1], 1) if hasattr(itertools, "batched") else itertools.repeat(1),
        itertools.tee([1])[0],
        as_async(lambda: iter([1]))(),
    ],
    ids=lambda iterator: type(iterator).__name__,
)
def test_pythons_own_iterators_are_streams(iterator: Any) -> None:
    assert is_stream(iterator)


@pytest.mark.parametrize("value", [io.BytesIO(b"a\nb\n"), io.StringIO("a"), Sampler(3), Rows()])
def test_what_can_be_pickled_is_no_stream(value: Any) -> None:
    assert not is_stream(value)


@pytest.mark.every_transport
def test_an_object_with_next_arrives_as_itself_both_ways(client_of) -> None:
    client = client_of(kind=kind_of, echo=lambda value: value, seed=lambda *, sampler: sampler.seed)

    assert client.kind(io.BytesIO(b"one\ntwo\n")) == "BytesIO"
    assert client.echo(io.BytesIO(b"one\ntwo\n")).getvalue() == b"one\ntwo\n"
    assert client.seed(sampler=Sampler(7)) == 7
    assert client.futures.echo(Sampler(7)).result(DEADLINE_S).seed == 7


@pytest.mark.every_transport
def test_what_is_declared_a_stream_is_one_both_ways_and_is_closed(client_of) -> None:
    given, returned = Sampler(10), Sampler(20)
    client = client_of(total=lambda items: sum(items), draw=lambda: courier.stream(returned))

    assert client.total(courier.stream(given)) == 11 + 12 + 13
    assert list(client.draw()) == [21, 22, 23]
    until(lambda: given.is_closed and returned.is_closed)


def test_async_iterators_and_iterables_can_be_declared(client_of) -> None:
    given, returned = AsyncSampler(), AsyncSampler()
    client = client_of(
        total=lambda items: sum(items),
        draw=lambda: courier.stream(returned),
        rows=lambda: courier.stream(Rows()),
    )

    assert client.total(courier.stream(given)) == 6
    assert list(client.draw()) == [1, 2, 3]
    assert list(client.rows()) == [1, 2, 3]
    assert client.total(courier.stream([4, 5])) == 9
    until(lambda: given.is_closed and returned.is_closed)


def test_a_declared_stream_is_an_iterator_where_it_was_made() -> None:
    async def collect(items: AsyncIterator[int]) -> list[int]:
        return [item async for item in items]

    stream = courier.stream(Sampler(0))
    numbers = (n for n in range(3))

    assert list(stream) == [1, 2, 3]
    assert courier.stream(numbers) is numbers
    with pytest.raises(TypeError, match="inside of another value"):
        pickle.dumps(stream)


@pytest.mark.parametrize("value", [7, None, Sampler])
def test_what_is_no_iterable_cannot_be_declared(value: Any) -> None:
    with pytest.raises(TypeError, match=r"lp\.stream takes an iterator or an iterable"):
        courier.stream(value)


def test_an_iterator_that_is_neither_says_how_it_can_be_sent(client_of) -> None:
    client = client_of(kind=kind_of, read=lambda: csv.reader(["a,b"]))

    with pytest.raises(TypeError) as refused:
        client.kind(csv.reader(["a,b"]))
    assert "give the call lp.stream(it)" in "".join(refused.value.__notes__)
    with pytest.raises(courier.RemoteError, match=r"return lp\.stream\(it\)"):
        client.read()


def test_a_file_is_sent_by_what_it_can_be_and_never_line_by_line(client_of, tmp_path) -> None:
    path = tmp_path / "lines"
    path.write_text("one\ntwo\n")
    client = client_of(kind=kind_of, lines=list)

    with path.open() as text, path.open("rb") as binary:
        assert client.kind(text) == "StringIO"  # as cloudpickle sends it
        with pytest.raises(TypeError) as refused:
            client.kind(binary)
        assert "give the call lp.stream(it)" in "".join(refused.value.__notes__)
        assert client.lines(courier.stream(binary)) == [b"one\n", b"two\n"]


def test_our_own_streams_may_be_passed_on(client_of) -> None:
    client = client_of(count=lambda n: iter(range(n)), total=lambda items: sum(items))

    assert client.total(client.count(5)) == 10
    assert client.total(client.aio.count(5)) == 10
