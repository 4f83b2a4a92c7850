"""A worker's feed: batches of rows that are pushed to it, or that it reads itself. Each row comes once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from examples._shared.data import Array, Data

Id = tuple[int, int, int]
"""Epoch, partition, and position in it."""


class Row(NamedTuple):
    """An image, the digit that it shows, and the row's id."""

    id: Id
    image: Array
    label: int


def rows(epoch: int, partition: int, digits: Data) -> Iterator[Row]:
    """Yield the rows of a partition."""
    for i, (image, label) in enumerate(zip(digits.inputs, digits.targets.tolist(), strict=True)):
        yield Row((epoch, partition, i), image, label)


class Source(Protocol):
    """The source of a worker's rows, which also takes their results."""

    def take(self, n: int) -> list[Row]:
        """Return n rows, fewer at the end, none after it. The rows of the call before are then handled."""

    def cancel(self) -> None:
        """Give no more rows, and tell the feeders."""

    def answer(self, rows: Sequence[Row], results: Sequence[Any]) -> None:
        """Send the result of each row to the place that the row came from."""


class DataFeed:
    """A worker's rows, in batches. Each row comes once.

    Args:
        seen: Rows that an earlier attempt has handled. They may come again, and are left out.
    """

    def __init__(self, source: Source, seen: Iterable[Id] = ()) -> None:
        self._source = source
        self._seen = set(seen)
        self._batch: list[Row] = []
        self._is_over = False

    def should_stop(self) -> bool:
        """True if there are no more rows."""
        return self._is_over

    def next_batch(self, n: int) -> list[Row]:
        """Return n rows. There are fewer at the end, or if some came twice, and none after the end."""
        self._batch = []
        while not (self._batch or self._is_over):
            rows = self._source.take(n)
            self._is_over = not rows
            self._batch = [row for row in rows if row.id not in self._seen]
            self._seen.update(row.id for row in rows)
        return self._batch

    def batch_results(self, results: Sequence[Any]) -> None:
        """Send one result for each row of the last batch, in the order of the rows."""
        if len(results) != len(self._batch):
            raise ValueError(f"{len(results)} results for a batch of {len(self._batch)} rows")
        self._source.answer(self._batch, results)

    def terminate(self) -> None:
        """Stop early: this worker has had enough rows, however many are still to come."""
        self._is_over = True
        self._source.cancel()
