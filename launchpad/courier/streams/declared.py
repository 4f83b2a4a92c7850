"""Iterators that a user declares to be streams: `lp.stream`."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Any, Generic, TypeVar, overload

from launchpad.courier.codec.iterators import StreamedIterator, is_iterator, is_stream

T = TypeVar("T")


@overload
def stream(items: Iterable[T]) -> Iterator[T]: ...
@overload
def stream(items: AsyncIterable[T]) -> AsyncIterator[T]: ...
def stream(items: Any) -> Any:
    """Make calls send the items of an iterator one after the other, instead of the iterator itself.

    Example:
        class Table:
            def rows(self):
                return lp.stream(csv.reader(self._file))    # its caller gets a row at a time

    Generators, async generators, `map`, `zip`, `filter`, `enumerate`, `reversed`, all of `itertools`, and
    iterators over Python's own containers are streams anyway. Other iterators (a file, a sampler, an
    environment with `__next__`) are not: calls pickle them, unless they are given to `stream`. Use `stream`
    for arguments and results of calls. Locally, the value that it returns iterates over the items, as
    `iter(items)` does.

    Args:
        items: An iterator or an iterable, sync or async.

    Raises:
        TypeError: `items` is neither an iterator nor an iterable.
    """
    if is_stream(items):
        return items
    kind = type(items)
    if hasattr(kind, "__iter__"):
        iterator = iter(items)
    elif hasattr(kind, "__aiter__"):
        iterator = aiter(items)
    elif is_iterator(kind):
        iterator = items
    else:
        raise TypeError(
            f"lp.stream takes an iterator or an iterable, sync or async, not {items!r:.80}"
        )
    if is_stream(iterator):
        return iterator
    is_sync = hasattr(type(iterator), "__next__")
    return DeclaredStream(iterator) if is_sync else DeclaredAsyncStream(iterator)


class DeclaredStream(StreamedIterator, Iterator[T], Generic[T]):
    """An iterator that is a stream because its user says so."""

    def __init__(self, iterator: Iterator[T]) -> None:
        self._iterator = iterator

    def __next__(self) -> T:
        return next(self._iterator)

    def close(self) -> None:
        """Close the iterator if it can be closed."""
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()


class DeclaredAsyncStream(StreamedIterator, AsyncIterator[T], Generic[T]):
    """An async iterator that is a stream because its user says so."""

    def __init__(self, iterator: AsyncIterator[T]) -> None:
        self._iterator = iterator

    async def __anext__(self) -> T:
        return await anext(self._iterator)

    async def aclose(self) -> None:
        """Close the iterator if it can be closed."""
        close = getattr(self._iterator, "aclose", None)
        if close is not None:
            await close()
