"""Calls that wait: at a server until something is so, and in a client until the server says that it is.

    a call ──▶ is it ready, and is no other before it in its line?
                 yes ──▶ done at once, in the thread of the call
                 no  ──▶ a Promise in the line. It is answered
                           when a change has made it ready      by the thread that made the change
                           when its time is up                  by the timer
                           when the server stops                by `end`
                         and leaves the line when its caller has gone: nothing is done for it

No thread and no coroutine waits for a call, so that thousands may. Clients that wait for longer than a call
may take repeat it: see `Poll`. A thread of the server's own worker waits in a `ThreadWait`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, TypeVar

from launchpad.courier import CourierError, DeadlineExceeded
from launchpad.courier import caller as courier_caller
from launchpad.courier.deadlines import deadline_after
from launchpad.courier.interruptions import Lock
from launchpad.courier.own_threads import OwnThread
from launchpad.courier.promise import Promise
from launchpad.errors import Stopped
from launchpad.runtime import context

T = TypeVar("T")

Answer = tuple[Promise, Any, BaseException | None]
"""A Promise, and the result or the error that it is to have."""

SLICE_S = 0.5
"""How long a client lets one call wait, before it looks whether the program stops."""

_LOOK_S = 1.0
"""How long the timer's thread sleeps at most, so that it ends soon after the last call that waited."""

_MARGIN_S = 0.5
_LONGEST_S = 60.0

_END_S = 1.0
"""How long after a call has failed the program's stop may become known, which explains it."""


class CallInLine:
    """A call that waits in a line for its turn.

    Attributes:
        act: Does it and returns the answer, or raises the error. Called once, with the lock.
        late: Returns or raises the answer when the time is up.
        owner: What the server knows it by, and finds it in its line.
        deadline: When its time is up, by `time.monotonic()`; None for no limit.
        promise: Will have the answer.
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
        """True once it can be done, or once asking that has failed: the error is then its answer."""
        try:
            return self._is_ready()
        except BaseException as error:
            self.act = partial(_raise, error)
            return True

    def begin(self) -> bool:
        """Return True if it is to be answered now; False if its caller has gone.

        From now on the caller can't cancel it.
        """
        has_gone = self._caller is not None and self._caller.is_gone()
        return not has_gone and self.promise.begin()


class Line(deque[CallInLine]):
    """Calls that wait for the same thing, in the order in which they came.

    Attributes:
        is_ordered: True if the first has to be done before the second is looked at. Else each is done as soon
            as it is ready itself; of two that are, the first.
    """

    is_ordered: bool

    def first_ready(self) -> CallInLine | None:
        """Return the call that can be done now; None if there is none."""
        for call in tuple(self):
            if call.promise.is_done:  # cancelled, and about to leave the line
                continue
            if call.is_ready():
                return call
            if self.is_ordered:
                return None
        return None


class WaitingCalls:
    """The calls that wait at one server, and the lock of what they wait for. Safe from any thread.

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
        name: Of the server, for the name of the timer's thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition(threading.Lock())
        self._lines: list[Line] = []
        self._answers: list[Answer] = []
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
        """Hold the lock for a look or a change; the calls that it makes ready are answered at its end."""
        answers: list[Answer] = []
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
            # Without the lock: answers are sent, and what is called then may come back here.
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
        """Answer a call: at once if it is ready and its turn, else with a Promise. Within `changing()`.

        Args:
            is_ready: Returns True once the call can be done. Called often, and with the lock.
            act: Does it and returns the answer, or raises the error. Called once, with the lock.
            late: Returns or raises the answer when the time is up; with the lock.
            wait_s: How long it may wait, in seconds; None for no limit.
            owner: Found as `call.owner` by those who look through the line.
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
        """Take a call out of its line; answer with what this returns or raises. Within `changing()`."""
        line.remove(call)
        call.is_waiting = False
        if not call.begin():
            return
        try:
            self._answers.append((call.promise, outcome(), None))
        except (
            BaseException
        ) as error:  # the failure of this call, and not of the one that made it ready
            self._answers.append((call.promise, None, error))

    def drop(self, line: Line, owner: Any) -> None:
        """Drop the calls of an owner, who asks again on another connection. Within `changing()`."""
        for call in tuple(line):
            if call.owner is owner:
                self.end_call(line, call, _cancelled)

    def end(self, outcome: Callable[[], Any]) -> None:
        """Answer with this all that wait, and all that will come. It may raise."""
        with self.changing():
            self._stopping = outcome
            for line in self._lines:
                for call in tuple(line):
                    self.end_call(line, call, outcome)
            # The timer's thread ends.
            self._changed.notify_all()

    def _settle(self) -> None:
        """Do what is ready until nothing is: what one call does may make another ready."""
        is_settled = False
        while not is_settled:
            is_settled = True
            for line in self._lines:
                while line and (call := line.first_ready()) is not None:
                    is_settled = False
                    self.end_call(line, call, call.act)

    def _leave(self, line: Line, call: CallInLine) -> None:
        """Take a call that its caller has cancelled out of the line: the one behind it may be ready."""
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
        """Answer the calls whose time is up, for as long as there are any with a limit."""
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
        """Wait until the next time is up; False if no call has a limit, and the thread ends."""
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
    """Wait for a Promise in a coroutine, whose cancellation cancels it."""
    import asyncio

    loop = asyncio.get_running_loop()
    is_done = asyncio.Event()

    def wake(_: Promise) -> None:
        # The loop is closed where the coroutine has ended with it.
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
    """A thread of this process that waits for one value; a lock of its own wakes it.

    Attributes:
        value: What it was given; before that, what it brings itself.
        error: What ended the wait, if no value did.
        is_over: True once it has its value.
        lock: Acquired while there is nothing to look at; the thread waits in `lock.acquire(timeout=…)`.
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
        """Let the thread look again."""
        if self.lock.locked():
            self.lock.release()


class Poll:
    """Calls of a client that may be repeated, and end with the program. Safe from any thread.

    client   Poll.ask(method, …) ── method(…, wait_s) ──▶ None: not yet ──▶ again, unless the program stops
    """

    def __init__(self, client: Any) -> None:
        self._client = client.with_options(idempotent=True)

    def call(self, method: str, *args: Any) -> Any:
        """Call once.

        Raises:
            Stopped: the program stops.
        """
        try:
            return getattr(self._client, method)(*args)
        except CourierError:
            _raise_if_stopping(_END_S)
            raise

    def ask(self, method: str, *args: Any, timeout_s: float | None = None) -> Any:
        """Call `method(*args, wait_s)` until it returns something else than None, and return that.

        Raises:
            TimeoutError: the time was up before; without a text.
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
                # The server is being started again, or the answer is large.
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
    if within_s and not me.link.is_inherited:  # a forked child is not asked to stop
        me.stop.event.wait(within_s)
    if me.stop.event.is_set():
        raise Stopped from None
