"""A worker's feed: rows that are pushed to it, or that it reads itself, in batches, each of them once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from examples._shared.digits import Array, Digits

Id = tuple[int, int, int]
"""Epoch, partition, and position in it."""


class Row(NamedTuple):
    """An image, the digit that it shows, and which row of all it is."""

    id: Id
    image: Array
    label: int


def rows(epoch: int, partition: int, digits: Digits) -> Iterator[Row]:
    """Give the rows of a partition."""
    for i, (image, label) in enumerate(zip(digits.images, digits.labels.tolist(), strict=True)):
        yield Row((epoch, partition, i), image, label)


class Source(Protocol):
    """Where a worker's rows come from, and where results go."""

    def take(self, n: int) -> list[Row]:
        """Return n rows, fewer at the end, none after it. Those of the call before are handled."""

    def cancel(self) -> None:
        """Give nothing more, and tell those that feed it."""

    def answer(self, rows: Sequence[Row], results: Sequence[Any]) -> None:
        """Send a result for each of the rows to where these came from."""


class DataFeed:
    """A worker's rows, in batches, each of them once.

    Args:
        seen: Rows that an attempt before this one has handled; they may come again.
    """

    def __init__(self, source: Source, seen: Iterable[Id] = ()) -> None:
        self._source, self._seen = source, set(seen)
        self._batch: list[Row] = []
        self._is_over = False

    def should_stop(self) -> bool:
        """Whether there are no more rows."""
        return self._is_over

    def next_batch(self, n: int) -> list[Row]:
        """Return n rows; fewer at the end, or if some have come twice; none after the end."""
        self._batch = []
        while not (self._batch or self._is_over):
            taken = self._source.take(n)
            self._is_over = not taken
            self._batch = [row for row in taken if row.id not in self._seen]
            self._seen.update(row.id for row in taken)
        return self._batch

    def batch_results(self, results: Sequence[Any]) -> None:
        """Give one result for each row of the last batch, in their order."""
        if len(results) != len(self._batch):
            raise ValueError(f"{len(results)} results for a batch of {len(self._batch)} rows")
        self._source.answer(self._batch, results)

    def terminate(self) -> None:
        """This worker has had enough, whatever is still to come."""
        self._is_over = True
        self._source.cancel()
