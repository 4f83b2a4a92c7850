"""Batches that a thread samples ahead of the loop that uses them."""

from __future__ import annotations

import queue
import threading
import weakref
from typing import TYPE_CHECKING, Any, Self

from launchpad.courier import fork
from launchpad.courier.codec.iterators import StreamedIterator
from launchpad.courier.interruptions import Event
from launchpad.courier.own_threads import OwnThread
from launchpad.errors import NotRunningError

if TYPE_CHECKING:
    from launchpad.replay.client import ReplayClient, ReplaySample

_LOOK_S = 0.5
"""How often the thread looks whether it is to end, where it waits."""


class Batches(StreamedIterator):
    """An iterator over batches without an end: `ReplayClient.batches`.

    What the sampling raises, `next` raises, and then StopIteration. It ends with `close()`, with its `with`
    block, or when it is dropped; the thread within half a second of that, also where it waits for items: it
    takes none any more.

    Example:
        with replay.batches("transitions", batch_size=32) as batches:
            for batch in batches:
                if train_on(batch.data) < 0.1:
                    break

    Raises:
        ValueError: `batch_size` or `prefetch` is less than 1.
    """

    def __init__(
        self,
        client: ReplayClient,
        table: str,
        batch_size: int,
        prefetch: int,
        timeout_s: float | None,
    ) -> None:
        if prefetch < 1 or batch_size < 1:
            raise ValueError(f"expected batch_size and prefetch >= 1, got {batch_size}, {prefetch}")
        self._queue: queue.Queue[ReplaySample | BaseException] = queue.Queue(prefetch)
        self._has_ended = fork.free_in_child(Event())
        self._error: BaseException | None = None
        weakref.finalize(self, self._has_ended.set).atexit = False
        arguments = client, table, batch_size, timeout_s, self._queue, self._has_ended
        OwnThread(target=_sample_ahead, args=arguments, name=f"replay-{table}").start()
        fork.call_in_child(self, type(self)._drop_inherited)

    def _drop_inherited(self) -> None:
        """For a forked child, in which the thread does not run: the batches are the parent's."""
        self._queue = queue.Queue()
        self._queue.put(
            NotRunningError(
                f"these batches are sampled by a thread, and {fork.describe_child()}, which has it. Call"
                " replay.batches() in the child."
            )
        )

    def close(self) -> None:
        """Ends it."""
        self._has_ended.set()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReplaySample:
        while not self._has_ended.is_set():
            try:
                found = self._queue.get(timeout=_LOOK_S)
            except queue.Empty:
                continue
            if isinstance(found, BaseException):
                self.close()
                raise found
            return found
        raise StopIteration

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _sample_ahead(
    client: ReplayClient,
    table: str,
    batch_size: int,
    timeout_s: float | None,
    batches: queue.Queue[Any],
    has_ended: threading.Event,
) -> None:
    """Runs in the thread. It knows the queue and not the iterator, which may be dropped."""
    while not has_ended.is_set():
        found: Any
        try:
            found = client.sample_batch_until(has_ended, table, batch_size, timeout_s)
        except BaseException as error:
            found = error
        while not has_ended.is_set():
            try:
                batches.put(found, timeout=_LOOK_S)
                break
            except queue.Full:
                continue
        if isinstance(found, BaseException):
            return
