"""Long waits for a server: calls that wait there for a condition, and clients that repeat such calls.

    a call ──▶ is it ready, and is no other before it in its line?
                 yes ──▶ done at once, in the thread of the call
                 no  ──▶ a Promise in the line. It is answered
                           when a change has made it ready      by the thread that made the change
                           when its time is up                  by the timer
                           when the server stops                by `end`
                         and leaves the line when its caller has gone: nothing is done for it

A waiting call occupies no thread and no coroutine, so thousands of calls can wait. A client that waits for
longer than one call may take repeats the call: see `Poll`. A thread of the server's own worker waits in a
`ThreadWait`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from launchpad.courier import CourierError, DeadlineExceeded
from launchpad.courier import caller as courier_caller
from launchpad.courier.deadlines import deadline_after
from launchpad.courier.interruptions import Lock
from launchpad.courier.own_threads import OwnThread
from launchpad.courier.promise import Promise
from launchpad.errors import Stopped
from launchpad.runtime import context

T = TypeVar("T")

SLICE_S = 0.5
"""Seconds that a client lets one call wait before it checks if the program stops."""

_LOOK_S = 1.0
"""The longest sleep of the timer's thread, so that it ends soon after the last waiting call."""

_MARGIN_S = 0.5
_LONGEST_S = 60.0

_END_S = 1.0
"""Seconds to wait, after a failed call, for the program's stop, which would explain the failure."""


class CallInLine:
    """A call that waits in a line for its turn.

    Attributes:
        act: Performs the call, and returns the answer or raises the error. Called once, with the lock.
        late: Returns or raises the answer when the time is up.
        owner: The object by which the server finds the call in its line.
        deadline: The time at which its wait ends, by `time.monotonic()`; None for no limit.
        promise: The promise of its answer.
        is_waiting: True while it is in its line.
    """

    def __init__(
        self,
        is_ready: Callable[[], bool],
        act: Callable[[], Any],
        late: Callable[[], Any],
        owner: Any,
        deadline: float | None,
    ) -> None:
        self.act = act
        self.late = late
        self.owner = owner
        self.deadline = deadline
        self.promise = Promise()
        self.is_waiting = True
        self._is_ready = is_ready
        self._caller = courier_caller.current.get()

    def is_ready(self) -> bool:
        """Return True if the call can be done. If the check itself fails, its error becomes the answer."""
        try:
            return self._is_ready()
        except BaseException as error:
            self.act = partial(_raise, error)
            return True

    def begin(self) -> bool:
        """Return True if the call can be answered now; False if its caller has gone or has cancelled it.

        After True, the caller can no longer cancel it.
        """
        has_gone = self._caller is not None and self._caller.is_gone()
        return not has_gone and self.promise.begin()


class Line(deque[CallInLine]):
    """Calls that wait for the same thing, in the order in which they came.

    Attributes:
        is_ordered: True if a call waits until all calls before it are done. Otherwise each call is done as
            soon as it is ready; if two are ready, the first one goes first.
    """

    is_ordered: bool

    def first_ready(self) -> CallInLine | None:
        """Return the call that can be done now, or None if no call can."""
        for call in tuple(self):
            if call.promise.is_done:
                # Its caller has cancelled it, and it is about to leave the line.
                continue
            if call.is_ready():
                return call
            if self.is_ordered:
                return None
        return None


class _DueAnswer(NamedTuple):
    """A Promise, and the result or the error to set on it."""

    promise: Promise
    result: Any
    error: BaseException | None


class WaitingCalls:
    """The calls that wait at one server, with the lock of the state they wait for. Thread-safe.

    Example:
        class Slots:
            def __init__(self) -> None:
                self._free = 4
                self._calls = WaitingCalls("slots")
                self._line = self._calls.line()

            def take(self, wait_s: float) -> bool | Promise:
                with self._calls.changing():
                    return self._calls.answer(
                        self._line, lambda: self._free > 0, self._take, lambda: False, wait_s
                    )

            def give_back(self) -> None:
                with self._calls.changing():
                    self._free += 1        # the first in the line is answered when the block is left

    Args:
        name: The name of the server, for the name of the timer's thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        # The lock of the server's state. The timer's thread waits on it, and is notified when a deadline is
        # earlier than those before.
        self._changed = threading.Condition(threading.Lock())
        self._lines: list[Line] = []
        self._answers: list[_DueAnswer] = []
        self._stopping: Callable[[], Any] | None = None
        self._timer: threading.Thread | None = None
        self._timer_looks_at = 0.0

    def line(self, *, is_ordered: bool = True) -> Line:
        """Return a new line of calls."""
        line = Line()
        line.is_ordered = is_ordered
        self._lines.append(line)
        return line

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock while the block reads or changes state, then answer calls that have become ready."""
        answers: list[_DueAnswer] = []
        try:
            with self._changed:
                try:
                    yield
                finally:
                    self._settle()
                    if self._answers:
                        answers = self._answers
                        self._answers = []
        finally:
            # Release the lock first: sending an answer may call code that calls this server again.
            for promise, result, error in answers:
                if error is None:
                    promise.set_result(result)
                else:
                    promise.set_exception(error)

    def answer(
        self,
        line: Line,
        is_ready: Callable[[], bool],
        act: Callable[[], T],
        late: Callable[[], T],
        wait_s: float | None,
        *,
        owner: Any = None,
    ) -> T | Promise:
        """Answer a call: at once if it is its turn and it is ready, otherwise with a Promise.

        Use it within `changing()`.

        Args:
            is_ready: Returns True if the call can be done. Called often, with the lock.
            act: Performs the call, and returns the answer or raises the error. Called once, with the lock.
            late: Returns or raises the answer when the time is up. Called with the lock.
            wait_s: How long the call may wait, in seconds; None for no limit.
            owner: The object by which the server finds the call in its line, as `call.owner`.
        """
        if self._stopping is not None:
            stopped: T = self._stopping()
            return stopped
        if not (line and line.is_ordered) and is_ready():
            return act()
        if wait_s is not None and wait_s <= 0:
            return late()
        call = CallInLine(is_ready, act, late, owner, deadline_after(wait_s))
        self._set_timer(call.deadline)
        line.append(call)
        call.promise.then(lambda _: self._leave(line, call))
        return call.promise

    def end_call(self, line: Line, call: CallInLine, outcome: Callable[[], Any]) -> None:
        """Remove a call from its line, and answer it with the result or error of `outcome()`.

        Use it within `changing()`.
        """
        line.remove(call)
        call.is_waiting = False
        if not call.begin():
            return
        try:
            self._answers.append(_DueAnswer(call.promise, outcome(), None))
        except BaseException as error:
            # The error belongs to this call, not to the call that made it ready and is running now.
            self._answers.append(_DueAnswer(call.promise, None, error))

    def drop(self, line: Line, owner: Any) -> None:
        """Drop the calls of an owner that asks again on another connection. Use it within `changing()`."""
        for call in tuple(line):
            if call.owner is owner:
                self.end_call(line, call, _cancelled)

    def end(self, outcome: Callable[[], Any]) -> None:
        """Answer all waiting calls, and all later ones, with the result or error of `outcome()`."""
        with self.changing():
            self._stopping = outcome
            for line in self._lines:
                for call in tuple(line):
                    self.end_call(line, call, outcome)
            # Wake the timer's thread, so that it ends.
            self._changed.notify_all()

    def _settle(self) -> None:
        """Do all calls that are ready, until none is left: doing one may make another ready."""
        is_settled = False
        while not is_settled:
            is_settled = True
            for line in self._lines:
                while line:
                    call = line.first_ready()
                    if call is None:
                        break
                    is_settled = False
                    self.end_call(line, call, call.act)

    def _leave(self, line: Line, call: CallInLine) -> None:
        """Remove a call that its caller has cancelled from its line. The next one may be ready."""
        if not call.is_waiting:
            return
        with self.changing():
            if call.is_waiting:
                line.remove(call)
                call.is_waiting = False

    def _set_timer(self, deadline: float | None) -> None:
        if deadline is None:
            return
        if self._timer is None:
            self._timer = OwnThread(target=self._watch_time, name=f"{self._name}-timer")
            self._timer.start()
        elif deadline < self._timer_looks_at:
            self._changed.notify_all()

    def _watch_time(self) -> None:
        """Answer calls when their time is up, as long as any call in a line has a deadline."""
        has_more = True
        while has_more:
            with self.changing():
                now = time.monotonic()
                for line in self._lines:
                    for call in tuple(line):
                        if call.deadline is not None and call.deadline <= now:
                            self.end_call(line, call, call.late)
                has_more = bool(self._answers) or self._wait_for_next(now)

    def _wait_for_next(self, now: float) -> bool:
        """Wait until the next deadline. Return False if no call has one, so that the thread ends."""
        deadlines = [
            call.deadline for line in self._lines for call in line if call.deadline is not None
        ]
        if not deadlines:
            self._timer = None
            return False
        self._timer_looks_at = min(min(deadlines), now + _LOOK_S)
        self._changed.wait(self._timer_looks_at - now)
        return True


async def outcome_of(promise: Promise) -> Any:
    """Wait for a Promise in a coroutine. If the coroutine is cancelled, so is the Promise."""
    import asyncio

    loop = asyncio.get_running_loop()
    is_done = asyncio.Event()

    def wake(_: Promise) -> None:
        # If the coroutine ended together with its loop, the loop is closed by now.
        if not loop.is_closed():
            loop.call_soon_threadsafe(is_done.set)

    promise.then(wake)
    try:
        await is_done.wait()
    except asyncio.CancelledError:
        promise.cancel()
        raise
    return promise.result()


def _raise(error: BaseException) -> None:
    raise error


def _cancelled() -> None:
    from concurrent.futures import CancelledError

    raise CancelledError("the caller asks again on another connection")


class ThreadWait(Generic[T]):
    """A thread of this process that waits for one value, with a lock that wakes it.

    Attributes:
        value: The value that it was given; before that, the value it was made with.
        error: The error that ended the wait, if no value did.
        is_over: True once it has its value.
        lock: Held until something changes; the thread waits in `lock.acquire(timeout=…)`.
    """

    __slots__ = ("error", "is_over", "lock", "value")

    def __init__(self, value: T | None = None) -> None:
        self.value = value
        self.error: BaseException | None = None
        self.is_over = False
        self.lock = Lock()
        self.lock.acquire()

    @property
    def has_ended(self) -> bool:
        return self.is_over or self.error is not None

    def succeed(self, value: T) -> None:
        self.value = value
        self.is_over = True
        self.wake()

    def fail(self, error: BaseException) -> None:
        self.error = error
        self.wake()

    def wake(self) -> None:
        """Wake the thread, so that it checks its state."""
        if self.lock.locked():
            self.lock.release()


class Poll:
    """A client's repeatable calls, which end when the program stops. Thread-safe.

    client   Poll.ask(method, …) ── method(…, wait_s) ──▶ None: not yet ──▶ again, unless the program stops
    """

    def __init__(self, client: Any) -> None:
        self._client = client.with_options(idempotent=True)

    def call(self, method: str, *args: Any) -> Any:
        """Make one call, and return its answer.

        Raises:
            Stopped: the program stops.
        """
        try:
            return getattr(self._client, method)(*args)
        except CourierError:
            _raise_if_stopping(_END_S)
            raise

    def ask(self, method: str, *args: Any, timeout_s: float | None = None) -> Any:
        """Call `method(*args, wait_s)` until it returns something other than None, and return that.

        Raises:
            TimeoutError: the timeout passed first. The error has no message.
            Stopped: the program stops.
        """
        deadline = deadline_after(timeout_s)
        limit_s = SLICE_S + _MARGIN_S
        while True:
            _raise_if_stopping(0)
            left_s = SLICE_S if deadline is None else max(0.0, deadline - time.monotonic())
            client = self._client.with_options(timeout_s=limit_s)
            try:
                answer = getattr(client, method)(*args, min(SLICE_S, left_s))
            except DeadlineExceeded:
                # The server is restarting, or the answer is large.
                limit_s = min(2 * limit_s, _LONGEST_S)
                answer = None
            except CourierError:
                _raise_if_stopping(_END_S)
                raise
            if answer is not None:
                return answer
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError


def _raise_if_stopping(within_s: float) -> None:
    me = context.try_current()
    if me is None:
        return
    # A forked child gets no request to stop, so it doesn't wait for one.
    if within_s and not me.link.is_inherited:
        me.stop.event.wait(within_s)
    if me.stop.event.is_set():
        raise Stopped from None
