"""Batches that a thread samples ahead of the loop that uses them."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from launchpad.courier import fork
from launchpad.courier.codec.iterators import StreamedIterator
from launchpad.courier.interruptions import Event
from launchpad.courier.own_threads import OwnThread
from launchpad.errors import NotRunningError

if TYPE_CHECKING:
    from launchpad.replay.columns import ReplaySample

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

    Args:
        sample: Returns the next batch, or raises CancelledError soon after its argument is set.
        prefetch: How many batches to have ready.
        name: Of the thread.
    """

    def __init__(
        self,
        sample: Callable[[threading.Event], ReplaySample],
        prefetch: int,
        *,
        name: str,
    ) -> None:
        self._queue: queue.Queue[ReplaySample | BaseException] = queue.Queue(prefetch)
        self._has_ended = fork.free_in_child(Event())
        self._error: BaseException | None = None
        weakref.finalize(self, self._has_ended.set).atexit = False
        arguments = (sample, self._queue, self._has_ended)
        OwnThread(target=_sample_ahead, args=arguments, name=name).start()
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
    sample: Callable[[threading.Event], ReplaySample],
    batches: queue.Queue[Any],
    has_ended: threading.Event,
) -> None:
    """Sample, in the thread, until the iterator ends.

    The thread knows the queue and not the iterator, which may be dropped.
    """
    while not has_ended.is_set():
        found: Any
        try:
            found = sample(has_ended)
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
