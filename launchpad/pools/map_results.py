"""The results of a map, in order, as they are taken."""

from __future__ import annotations

import itertools
import queue
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from launchpad.pools.packing import Call
from launchpad.pools.schedule import MapCalls


class MapFeed:
    """Reads the arguments of a map: all at once, or no further ahead of its results than is told.

    Args:
        work: Where the calls go.
        calls: The arguments, perhaps without an end.
        ahead: Returns how many calls may be without a result that was taken.
        add: Hands some to the pool.
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
        self._ahead, self._add = ahead, add
        self.n_open = 0
        """Calls whose results were not taken yet."""
        self.error: Exception | None = None
        """Why no more can be read: what the iterables, or pickling, raised after the calls that were read."""

    def fill(self) -> None:
        """Reads as far ahead as may be, unless there was an error."""
        room = self._ahead() - self.n_open
        if room <= 0 or self.error is not None:
            return
        calls: list[Call] = []
        try:
            for call in itertools.islice(self._calls, None if room == float("inf") else int(room)):
                calls.append(call)  # one by one: those before an error are kept
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
    """The results; raises the first error when its turn comes, and TimeoutError when the time is up.

    What reading further ahead raises (the iterables; RuntimeError once the pool is shut down) comes after
    the results of what was sent before.
    Whatever ends it, calls that were not sent are dropped.
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
            except Exception as failed:
                feed.error = failed
        if feed.error is not None:
            raise feed.error
    finally:
        drop(feed.work)
