"""The context of a `main_fun`: rows, each of which comes once, and parameters that all workers train."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from examples._shared.data import Array

Id = tuple[int, int, int]  # epoch, partition, and position in it


class Row(NamedTuple):
    """A row of the user's, and its id."""

    id: Id
    value: Any


Take = Callable[[int], list[Row]]


class Context:
    """A worker's part in the cluster, which `main_fun` gets.

    Args:
        worker: The worker's number.
        take: Returns n rows, fewer at the end, none after it. The rows of the call before are then handled.
        cancel: Says that no more rows are wanted, after which `take` returns none.
        ps: The parameter server.
    """

    def __init__(self, worker: int, take: Take, cancel: Callable[[], object], ps: Any) -> None:
        self.worker = worker
        self.take = take
        self.terminate = cancel
        self.results: list[tuple[Id, Any]] = []
        self._ps = ps
        self._ids: list[Id] = []
        self.parameters: Array
        self.parameters, self._step, handled = ps.begin(worker)
        self._seen: set[Id] = set(handled)
        self._n_rows = 1  # there may be a step to come

    def batches(self, n: int) -> Iterator[list[Any]]:
        """Yield batches of n rows. Then take part in the steps of the workers that still have rows."""
        while taken := self.take(n):
            rows = [row for row in taken if row.id not in self._seen]
            self._seen.update(row.id for row in rows)
            self._ids = [row.id for row in rows]
            if rows:
                yield [row.value for row in rows]
        self._ids = []
        while self._n_rows:
            self.add(0 * self.parameters)

    def add(self, change: Array) -> Array:
        """Give the mean change over the last batch. Return the parameters after the mean of all workers."""
        pushed = self._ps.push(self.worker, self._step, change, self._ids)
        self.parameters, self._n_rows = pushed
        self._step += 1
        return self.parameters

    def batch_results(self, results: Sequence[Any]) -> None:
        """Give one result for each row of the last batch, in the order of the rows."""
        self.results += zip(self._ids, results, strict=True)
