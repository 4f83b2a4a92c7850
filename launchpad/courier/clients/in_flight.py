"""A call on its way, which is its own future.

    submitted ──▶ record ──────the outcome is here──────▶ settled record
                    │                                         │
         somebody touches `_condition`             somebody touches `_condition`
                    ▼                                         ▼
             standard future ──the outcome is published──▶ finished standard future

Most futures are not waited for: they are asked for a result that has been there for long. So a call begins
as a plain record, without the lock, the lists and the state of `concurrent.futures.Future`, which would
cost more than all the rest of it. It gets them when they are needed: everything in the standard library
that waits (`wait`, `as_completed`, `add_done_callback`, and with it asyncio) takes `future._condition`
before it looks at anything else. That is all we rely upon.

1. Who takes a call out of its pipeline's dict decides its outcome: the answer, an error, `cancel`.
2. That one says `is_settled` first, and then looks whether it `is_watched`. Who wants to wait does it the
   other way around. So one of the two sees the other.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError
from typing import TYPE_CHECKING, Any, Protocol

from launchpad.courier.clients.options import Options
from launchpad.courier.protocol.wire import Chunk
from launchpad.courier.watching.counts import MethodCounts

if TYPE_CHECKING:
    from launchpad.courier.streams.stream_calls import Lines

_CANCELLED = CancelledError()
_UNPUBLISHED = "_is_unpublished"

_monotonic = time.monotonic
_watching = threading.Lock()  # of any call, by whoever begins to wait for one


class Keeper(Protocol):
    """What a call asks of the pipeline that it is in."""

    def flush(self) -> None: ...

    def withdraw(self, call: InFlight) -> bool: ...


class _OnDemand:
    """An attribute that is found here as long as the instance has none of that name."""

    def __get__(self, call: InFlight, _: type) -> threading.Condition:
        return call.become_standard()


class InFlight(Future[Any]):
    """The future of a call that `client.futures` has made.

    `cancel` works until the answer is here. It then tells the server, which will not begin the call
    if it has not begun; a method that runs is not interrupted.
    """

    __slots__ = (
        "_gates",
        "_keeper",
        "began",
        "call_id",
        "counts",
        "deadline",
        "error",
        "frame",
        "is_sent",
        "is_settled",
        "is_watched",
        "lines",
        "method",
        "options",
        "size",
        "value",
    )

    _condition = _OnDemand()

    def __init__(
        self,
        keeper: Keeper,
        call_id: int,
        method: bytes,
        options: Options,
        counts: MethodCounts,
        size: int,
        lines: Lines | None,
    ) -> None:
        self._keeper = keeper
        self.lines = lines  # until settled: the way to a stream that it may be answered with
        self.call_id = call_id
        self.method = method
        self.options = options
        self.counts = counts
        self.size = size  # of the arguments
        self.began = _monotonic()
        self.deadline: float | None = None
        self.frame: bytes | Sequence[Chunk] = b""  # until settled: it may have to be sent again
        self.is_sent = False  # at least in part
        self.is_settled = self.is_watched = False
        self.value: Any = None
        self.error: BaseException | None = None
        self._gates: list[threading.Lock] | None = None  # of the threads that wait in `result`

    def result(self, timeout: float | None = None) -> Any:
        """The value, or raises the error; waits for it up to `timeout` seconds."""
        if not self.is_settled:
            self._wait(timeout)
        if self.error is None:
            return self.value
        try:
            raise CancelledError if self.error is _CANCELLED else self.error
        finally:
            del self  # not part of the traceback, which the error keeps

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error, None if there was none; waits for it up to `timeout` seconds."""
        if not self.is_settled:
            self._wait(timeout)
        if self.error is _CANCELLED:
            raise CancelledError
        return self.error

    def done(self) -> bool:
        return self.is_settled

    def cancelled(self) -> bool:
        return self.is_settled and self.error is _CANCELLED

    def cancel(self) -> bool:
        return self._keeper.withdraw(self) or self.cancelled()

    # For whoever has taken it out of the pipeline's dict: one of these, once.

    def succeed(self, value: Any, size: int) -> None:
        """`size` is how many bytes the answer had."""
        self.value = value
        self._settle(size)

    def fail(self, error: BaseException) -> None:
        self.error = error
        self.counts.errors += 1
        self._settle(0)

    def fail_as_cancelled(self) -> None:
        self.error = _CANCELLED
        self._settle(0)

    def _settle(self, bytes_in: int) -> None:
        self.counts.finish(_monotonic() - self.began, bytes_in, self.size)
        self.frame = b""
        self.lines = None
        self.is_settled = True
        if self.is_watched:
            self.tell()

    def tell(self) -> None:
        """Wakes those who wait. The first one to call it also makes the callbacks."""
        while self._gates:
            with contextlib.suppress(IndexError):  # of one that has just given up
                self._gates.pop().release()
        if vars(self).pop(_UNPUBLISHED, False):
            try:
                self._publish()
            except InvalidStateError:
                pass  # somebody has set it who may not
            except BaseException:  # a callback that ends its thread: this one serves others, too
                threading.excepthook(
                    threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread()))
                )

    def become_standard(self) -> threading.Condition:
        """Gives it the parts of a standard future, if it has none yet."""
        own = vars(self)
        with _watching:
            if "_condition" not in own:
                self.is_watched = True
                own.update({**vars(Future()), _UNPUBLISHED: True})  # all at once
        if self.is_settled:
            self.tell()
        condition: threading.Condition = own["_condition"]
        return condition

    def _publish(self) -> None:
        if self.error is None:
            self.set_result(self.value)
        elif self.error is not _CANCELLED:
            self.set_exception(self.error)
        elif super().cancel():
            self.set_running_or_notify_cancel()

    def _wait(self, timeout: float | None) -> None:
        gate = threading.Lock()
        gate.acquire()
        with _watching:
            self._gates = self._gates or []
            self._gates.append(gate)
        self.is_watched = True
        self._keeper.flush()
        if not self.is_settled:
            gate.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
        if not self.is_settled:
            with contextlib.suppress(ValueError):
                self._gates.remove(gate)
            raise TimeoutError
