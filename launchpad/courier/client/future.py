"""The futures of calls. That of a pipelined call is also the record of it.

    submitted ──▶ record ────the outcome is here────▶ completed record
                    │                                     │
           `_condition` is used                  `_condition` is used
                    ▼                                     ▼
             standard future ──the outcome is set──▶ finished standard future

Most futures are not waited for: they are asked for a result that has been there for long. So a call begins
as a plain record, without the lock, the lists and the state of `concurrent.futures.Future`, which would
cost more than all the rest of it. It gets them when they are needed: everything in the standard library
that waits (`wait`, `as_completed`, `add_done_callback`, and with it asyncio) takes `future._condition`
before it looks at anything else. Nothing else of it is relied upon, but in forked children, which renew
what threads that they do not have may hold.

1. The thread that takes a call out of its pipeline's dict decides its outcome: answer, error, `cancel`.
2. It sets `is_completed` first, and then looks whether the call `is_watched`. A thread that begins to wait
   does it the other way around. So one of the two sees the other.
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

CANCELLED = CancelledError()  # the error of calls that were cancelled
#: Never the same twice: a call may go from one owner to another.
next_call_id = itertools.count(1).__next__
_UNPUBLISHED = "_is_unpublished"

_monotonic = time.monotonic
_watching = fork.free_in_child(Lock())  # of any call, by a thread that begins to wait for one


class _OnDemand:
    """An attribute that is found here as long as the instance has none of that name."""

    def __get__(self, call: PipelinedFuture, _: type) -> threading.Condition:
        """Gives the call the parts of a standard future, if it has none yet."""
        own = call.__dict__  # an AttributeError, as it should be, for the class
        with _watching:
            if "_condition" not in own:
                call.is_watched = True
                own.update(
                    {**vars(Future()), "_condition": Condition(), _UNPUBLISHED: True}
                )  # all at once
        call.watch()
        if call.is_completed:
            call.notify()
        condition: threading.Condition = own["_condition"]
        return condition


class CourierFuture(Future[Any]):
    """A future whose callbacks may wait, even for other futures: they run on threads of their own.

    `cancel` works until the answer is here. The server then does not begin the call if it has not
    begun; a method that runs is not interrupted.

    In a forked child it ends with OutcomeUnknown if it had not ended at the fork: its outcome, and what is to
    be done then, are the parent's.
    """

    def __init__(self) -> None:
        super().__init__()
        fork.drop_in_child(self)

    def drop_inherited(self) -> None:
        """For a forked child: ends it there, unless it has ended."""
        _renew_in_child(self)
        if not self.done():
            self.set_exception(_of_parent("this call"))

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        if not self.done() and not callbacks.is_quick(fn):
            fn = partial(callbacks.submit, fn)
        super().add_done_callback(fn)


class CallOwner(Protocol):
    """What has the calls that are under way."""

    #: From the process that forked this one: no call of it ends here by itself.
    is_inherited: bool

    def withdraw(self, call: Any) -> bool:
        """Cancels it; False if it has an outcome already."""

    def flush(self) -> None:
        """A thread is about to wait for a call: sends what is still to be sent."""


class PipelinedFuture(CourierFuture):
    """The future of a call that `client.futures` has made over a socket.

    It is the whole record of the call, in one object: a second one would cost each call 0.2 µs, of about 5.
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
        self.channel = channel  # until completed: fetches a stream that it is answered with
        self.call_id = call_id
        self.method = method
        self.options = options
        self.counts = counts
        self.size = size  # of the arguments
        self.began = _monotonic()
        self.deadline: float | None = None
        # Until completed, since it may have to be sent again. A tuple is the arguments themselves.
        self.frame: bytes | list[Chunk] | tuple[Any, ...] = b""
        self.is_sent = False  # at least in part
        self.is_completed = self.is_watched = False
        self.value: Any = None
        self.error: BaseException | None = None
        self._wait_locks: list[threading.Lock] | None = None  # of the threads that wait in `result`

    def result(self, timeout: float | None = None) -> Any:
        """The value, or raises the error; waits for it up to `timeout` seconds."""
        if not self.is_completed:
            self._wait(timeout)
        if self.error is None:
            return self.value
        try:
            raise CancelledError if self.error is CANCELLED else self.error
        finally:
            del self  # not part of the traceback, which the error keeps

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error, None if there was none; waits for it up to `timeout` seconds."""
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
        """Something waits to be notified of the outcome, and does not ask for it."""

    # For the thread that has taken it out of the pipeline's dict: one of these, once.

    def succeed(self, value: Any, size: int) -> None:
        """`size` is how many bytes the answer had."""
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
        """For a forked child, which the one that has the call calls: ends it there. Nothing is counted."""
        if vars(self).get(_UNPUBLISHED):
            _renew_in_child(self)
        self.error = _of_parent(f"{self.method.decode()!r}")
        self.frame = b""
        self.channel = None
        self.is_completed = True
        PipelinedFuture.notify(self)  # no event loop: that is the parent's

    def notify(self) -> None:
        """Wakes the threads that wait. The first call of it also runs the callbacks."""
        while self._wait_locks:
            with contextlib.suppress(IndexError):  # of one that has just given up
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
                pass  # it was set by code that must not
            except BaseException:  # of a callback: this thread serves other calls, too
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
        if self.owner.is_inherited and not self.is_completed:  # a thread was just completing it
            self.drop_inherited()
        if not self.is_completed:
            waiter.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
        if not self.is_completed:
            with contextlib.suppress(ValueError):
                self._wait_locks.remove(waiter)
            raise TimeoutError


class CallFuture(CourierFuture):
    """The future of one call that is made in another way."""

    #: Called once, in the thread that cancels it.
    on_cancel: Callable[[], None] | None = None

    def __init__(self) -> None:
        super().__init__()
        self._condition = Condition()

    def cancel(self) -> bool:
        if not super().cancel():
            return False
        with self._condition:
            on_cancel, self.on_cancel = self.on_cancel, None
        if on_cancel is not None:
            self.set_running_or_notify_cancel()
            on_cancel()
        return True

    def complete(self, decode_reply: Callable[[], Any]) -> None:
        """Sets what `decode_reply()` returns or raises; nothing happens to a cancelled future."""
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
    """Leaves the parent its callbacks, and the threads that wait for it there."""
    vars(future).update(_condition=Condition(), _done_callbacks=[], _waiters=[])


def _of_parent(what: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"{what} was under way when {fork.describe_child()}: its outcome is known there, and not here"
    )
