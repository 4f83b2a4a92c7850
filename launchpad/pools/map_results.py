"""The arguments of a map, read as they are needed, and its results, in order."""

from __future__ import annotations

import itertools
import queue
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from launchpad.pools.packing import Call
from launchpad.pools.schedule import MapCalls


class MapFeed:
    """A reader of a map's arguments. It reads all at once, or only a limited number ahead of the results.

    Args:
        work: The calls of the map, as the pool schedules them.
        calls: The calls to read. There may be no end to them.
        ahead: A function that returns how many calls may be read before their results are taken.
        add: A function that hands calls to the pool.
    """

    def __init__(
        self,
        work: MapCalls,
        calls: Iterable[Call],
        ahead: Callable[[], float],
        add: Callable[[MapCalls, list[Call]], None],
    ) -> None:
        self.work = work
        self._calls = iter(calls)
        self._ahead = ahead
        self._add = add
        self.n_open = 0
        """The number of calls whose results were not taken yet."""
        self.error: Exception | None = None
        """The error of the iterables, or of pickling, that ended the reading. Earlier calls still run."""

    def fill(self) -> None:
        """Read as far ahead as allowed, unless there was an error."""
        room = self._ahead() - self.n_open
        if room <= 0 or self.error is not None:
            return
        calls: list[Call] = []
        try:
            # Append one by one, to keep the calls before an error.
            for call in itertools.islice(self._calls, None if room == float("inf") else int(room)):
                calls.append(call)
        except Exception as error:
            self.error = error
        if calls:
            self._add(self.work, calls)
            self.n_open += len(calls)


def taken(
    feed: MapFeed,
    timeout_s: float | None,
    deadline: float | None,
    drop: Callable[[MapCalls], None],
) -> Iterator[Any]:
    """Yield the results. Raise the first error at its turn, and TimeoutError when the time is up.

    Reading further ahead may raise errors of the iterables, or RuntimeError once the pool is shut down. These
    errors come after the results of the calls that were sent before. At the end, in every case, calls that
    were not sent are dropped.
    """

    def left_s() -> float | None:
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    try:
        while feed.n_open:
            try:
                chunk = feed.work.chunks.get(timeout=left_s())
            except queue.Empty:
                raise TimeoutError(f"no result within {timeout_s} s: no worker was free") from None
            results, error = chunk.result(left_s())
            feed.n_open -= len(results)
            yield from results
            if error is not None:
                raise error
            try:
                feed.fill()
            except Exception as feed_error:
                feed.error = feed_error
        if feed.error is not None:
            raise feed.error
    finally:
        drop(feed.work)
