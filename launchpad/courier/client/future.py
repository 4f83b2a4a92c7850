"""The futures of calls. The future of a pipelined call is also the record of that call.

    submitted ──▶ record ────the outcome is here────▶ completed record
                    │                                     │
           `_condition` is used                  `_condition` is used
                    ▼                                     ▼
             standard future ──the outcome is set──▶ finished standard future

Programs seldom wait for a future: most results arrived long before a program asks for them. So a call begins
as a plain record, without the lock, the lists and the state of `concurrent.futures.Future`, which would cost
more than all the rest of the call. The record gets them when something needs them: everything in the
standard library that waits (`wait`, `as_completed`, `add_done_callback`, and with it asyncio) takes
`future._condition` before it looks at anything else. This module uses no other internals of that class,
except in forked children. A child replaces the lock and the lists, which threads of the parent may hold or
use.

1. The thread that takes a call out of its pipeline's dict decides the call's outcome: an answer, an error or
   a cancellation.
2. That thread sets `is_completed` first, and then checks whether the call `is_watched`. A thread that
   begins to wait sets `is_watched` first, and then checks `is_completed`. So at least one of the two threads
   sees what the other has set.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from launchpad.courier import fork
from launchpad.courier.client import callbacks
from launchpad.courier.client.call import NotRun
from launchpad.courier.client.options import Options
from launchpad.courier.errors import OutcomeUnknown
from launchpad.courier.interruptions import Condition, Lock
from launchpad.courier.protocol.framing import Chunk
from launchpad.courier.telemetry.counters import MethodCounts

if TYPE_CHECKING:
    from launchpad.courier.client.channel_protocols import CallRoute

CANCELLED = CancelledError()  # the error of cancelled calls
#: Returns a new id each time. All owners share the ids, because a call may move from one owner to another.
next_call_id = itertools.count(1).__next__
_UNPUBLISHED = "_is_unpublished"

_monotonic = time.monotonic
# A thread holds this lock while it begins to wait for any call. Otherwise, if two threads began to wait for
# the same call, each could make it a standard future, or give it a list of locks. Then one of them would
# never be woken.
_watching = fork.free_in_child(Lock())


class _OnDemand:
    """The attribute `_condition` of an instance that has no such attribute of its own yet."""

    def __get__(self, call: PipelinedFuture, _: type) -> threading.Condition:
        """Make the call a full standard future, unless it already is one, and return its condition."""
        attributes = call.__dict__  # read on the class, this raises AttributeError, as it should
        with _watching:
            if "_condition" not in attributes:
                call.is_watched = True
                # This is one step, so that no other thread sees only some of the attributes.
                attributes.update({**vars(Future()), "_condition": Condition(), _UNPUBLISHED: True})
        call.watch()
        if call.is_completed:
            call.notify()
        condition: threading.Condition = attributes["_condition"]
        return condition


class CourierFuture(Future[Any]):
    """A future whose callbacks may wait, even for other futures, because they run on threads of their own.

    `cancel` works until the answer has arrived. A cancelled call that the server has not begun never runs. A
    method that is already running is not interrupted.

    A future that is not done at a fork ends with OutcomeUnknown in the child. The parent gets the outcome,
    and runs the callbacks.
    """

    def __init__(self) -> None:
        super().__init__()
        fork.drop_in_child(self)

    def drop_inherited(self) -> None:
        """End this future in a forked child, unless it is done."""
        _renew_in_child(self)
        if not self.done():
            self.set_exception(_of_parent("this call"))

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        if not self.done() and not callbacks.is_quick(fn):
            fn = partial(callbacks.submit, fn)
        super().add_done_callback(fn)


class CallOwner(Protocol):
    """The owner of calls that are in flight."""

    #: True in a forked child for an owner of the parent's. In the child its calls never end by themselves.
    is_inherited: bool

    def withdraw(self, call: Any) -> bool:
        """Cancel the call and return True. If the call already has an outcome, return False."""

    def flush(self) -> None:
        """Send all unsent calls, because a thread is about to wait for a call."""


class PipelinedFuture(CourierFuture):
    """The future of a call that `client.futures` makes over a socket.

    It is the whole record of the call, in one object: a second object would add 0.2 µs to the roughly 5 µs
    of each call.
    """

    __slots__ = (
        "_wait_locks",
        "began",
        "call_id",
        "channel",
        "counts",
        "deadline",
        "error",
        "frame",
        "is_completed",
        "is_sent",
        "is_watched",
        "method",
        "options",
        "owner",
        "size",
        "value",
    )

    _condition = _OnDemand()

    def __init__(
        self,
        owner: CallOwner,
        call_id: int,
        method: bytes,
        options: Options,
        counts: MethodCounts,
        size: int,
        channel: CallRoute | None,
    ) -> None:
        self.owner = owner
        self.channel = channel  # until completed; it opens the stream if the answer is a stream
        self.call_id = call_id
        self.method = method
        self.options = options
        self.counts = counts
        self.size = size  # of the arguments, in bytes
        self.began = _monotonic()
        self.deadline: float | None = None
        # The request. It is kept until the call is completed, because it may have to be sent again. A tuple
        # holds the arguments, which are not encoded yet.
        self.frame: bytes | list[Chunk] | tuple[Any, ...] = b""
        self.is_sent = False  # True once any part of the request was sent
        self.is_completed = False
        self.is_watched = False
        self.value: Any = None
        self.error: BaseException | None = None
        # One lock for each thread that waits in `result`.
        self._wait_locks: list[threading.Lock] | None = None

    def result(self, timeout: float | None = None) -> Any:
        """Wait up to `timeout` seconds for the outcome. Return the value or raise the error."""
        if not self.is_completed:
            self._wait(timeout)
        if self.error is None:
            return self.value
        try:
            raise CancelledError if self.error is CANCELLED else self.error
        finally:
            del self  # the error's traceback must not keep this future alive

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait up to `timeout` seconds for the outcome. Return the error, or None if there was no error."""
        if not self.is_completed:
            self._wait(timeout)
        if self.error is CANCELLED:
            raise CancelledError
        return self.error

    def done(self) -> bool:
        return self.is_completed

    def cancelled(self) -> bool:
        return self.is_completed and self.error is CANCELLED

    def cancel(self) -> bool:
        return self.owner.withdraw(self) or self.cancelled()

    def watch(self) -> None:
        """Prepare to notify something that waits for the outcome without asking for it."""

    # The thread that took this future out of the pipeline's dict calls either `succeed` or `fail`, once.

    def succeed(self, value: Any, size: int) -> None:
        """Complete the call with its value. `size` is the size of the answer in bytes."""
        self.value = value
        self._complete(size)

    def fail(self, error: BaseException) -> None:
        self.error = error
        self.counts.errors += error is not CANCELLED
        self._complete(0)

    def _complete(self, bytes_in: int) -> None:
        self.counts.finish(_monotonic() - self.began, bytes_in, self.size)
        self.frame = b""
        self.channel = None
        self.is_completed = True
        if self.is_watched:
            self.notify()

    def drop_inherited(self) -> None:
        """End this future in a forked child, and count nothing. The child's copy of the owner calls this."""
        if vars(self).get(_UNPUBLISHED):
            _renew_in_child(self)
        self.error = _of_parent(f"{self.method.decode()!r}")
        self.frame = b""
        self.channel = None
        self.is_completed = True
        # Not `self.notify`: a subclass would notify the event loop, which is the parent's.
        PipelinedFuture.notify(self)

    def notify(self) -> None:
        """Wake the threads that wait. The first call also runs the callbacks."""
        while self._wait_locks:
            # IndexError: a thread that gave up waiting has just taken its lock out.
            with contextlib.suppress(IndexError):
                self._wait_locks.pop().release()
        if vars(self).pop(_UNPUBLISHED, False):
            try:
                if self.error is None:
                    self.set_result(self.value)
                elif self.error is not CANCELLED:
                    self.set_exception(self.error)
                elif super().cancel():
                    self.set_running_or_notify_cancel()
            except InvalidStateError:
                pass  # the user's code has set the outcome, which only courier may do
            except BaseException:  # a callback raised it, and this thread serves other calls, too
                threading.excepthook(
                    threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread()))
                )

    def _wait(self, timeout: float | None) -> None:
        waiter = Lock()
        waiter.acquire()
        with _watching:
            self._wait_locks = self._wait_locks or []
            self._wait_locks.append(waiter)
        self.is_watched = True
        self.owner.flush()
        # The parent's thread that was completing this call doesn't exist in a forked child.
        if self.owner.is_inherited and not self.is_completed:
            self.drop_inherited()
        if not self.is_completed:
            waiter.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
        if not self.is_completed:
            with contextlib.suppress(ValueError):
                self._wait_locks.remove(waiter)
            raise TimeoutError


class CallFuture(CourierFuture):
    """The future of one call that does not go through a pipeline."""

    #: Called once, in the thread that cancels the future.
    on_cancel: Callable[[], None] | None = None

    def __init__(self) -> None:
        super().__init__()
        self._condition = Condition()

    def cancel(self) -> bool:
        if not super().cancel():
            return False
        with self._condition:
            on_cancel = self.on_cancel
            self.on_cancel = None
        if on_cancel is not None:
            self.set_running_or_notify_cancel()
            on_cancel()
        return True

    def complete(self, decode_reply: Callable[[], Any]) -> None:
        """Set the outcome to what `decode_reply()` returns or raises, unless the future was cancelled."""
        with contextlib.suppress(InvalidStateError):
            try:
                value = decode_reply()
            except NotRun:
                raise
            except Exception as error:
                self.set_exception(error)
            else:
                self.set_result(value)

    def fail(self, error: Exception) -> None:
        with contextlib.suppress(InvalidStateError):
            self.set_exception(error)


def _renew_in_child(future: Future[Any]) -> None:
    """Drop the callbacks and waiting threads of a future in a forked child. They belong to the parent."""
    vars(future).update(_condition=Condition(), _done_callbacks=[], _waiters=[])


def _of_parent(subject: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"{subject} was under way when {fork.describe_child()}: its outcome is known there, and not here"
    )
