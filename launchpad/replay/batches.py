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
"""How often, in seconds, a waiting thread checks if it must end."""


class Batches(StreamedIterator):
    """An endless iterator over batches, made by `ReplayClient.batches`.

    If sampling raises an error, `next` raises this error, and after that StopIteration. The iterator ends
    with `close()`, at the end of its `with` block, or when it is garbage collected. Within half a second, its
    thread ends, too, even if it is waiting for items, and no more items are sampled.

    Example:
        with replay.batches("transitions", batch_size=32) as batches:
            for batch in batches:
                if train_on(batch.data) < 0.1:
                    break

    Args:
        sample: A function that returns the next batch, or raises CancelledError soon after its argument is
            set.
        prefetch: The number of batches to keep ready.
        name: The name of the thread.
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
        """Make `next` raise NotRunningError in a forked child, because the thread runs in the parent."""
        self._queue = queue.Queue()
        self._queue.put(
            NotRunningError(
                f"these batches are sampled by a thread, and {fork.describe_child()}, which has it. Call"
                " replay.batches() in the child."
            )
        )

    def close(self) -> None:
        """End the iterator and its thread."""
        self._has_ended.set()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReplaySample:
        while not self._has_ended.is_set():
            try:
                sample_or_error = self._queue.get(timeout=_LOOK_S)
            except queue.Empty:
                continue
            if isinstance(sample_or_error, BaseException):
                self.close()
                raise sample_or_error
            return sample_or_error
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
    """Sample batches until the iterator ends. The thread runs this.

    The thread has references to the queue and the event, but not to the iterator, so that the iterator can
    be garbage collected.
    """
    while not has_ended.is_set():
        sample_or_error: Any
        try:
            sample_or_error = sample(has_ended)
        except BaseException as error:
            sample_or_error = error
        while not has_ended.is_set():
            try:
                batches.put(sample_or_error, timeout=_LOOK_S)
                break
            except queue.Full:
                continue
        if isinstance(sample_or_error, BaseException):
            return
