"""Calls that run one at a time, and all of them in one thread: the one that is in `OneThread.run`.

    a thread of the pool ──put──▶ waiting ──▶ the one thread runs it, encodes its result ──▶ the pool answers

The pool gets a Promise and has its thread back, so a call that waits for its turn holds none. The result is
encoded before the next call may change it.
"""

from __future__ import annotations

import contextvars
import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from types import CoroutineType
from typing import Any

from launchpad.courier import call_stack, caller, fork
from launchpad.courier.codec.iterators import StreamedIterator, is_stream
from launchpad.courier.codec.pickling import SCALARS
from launchpad.courier.promise import Promise
from launchpad.courier.protocol import framing
from launchpad.courier.server.decorators import PRIORITY
from launchpad.courier.server.dispatcher import EncodedResult, encode_at_once

Function = Callable[..., Any]
# What a call brings with it: its deadline, its caller, the span of OpenTelemetry. All other context variables
# are those of the one thread, as that of `decimal` is.
_CARRIED = {call_stack.current_call.name, caller.current.name, "current_context"}
_STOPPING = EncodedResult((framing.NOT_RUN, framing.STOPPING, []))
_LATE = EncodedResult((framing.NOT_RUN, framing.LATE, []))


class OneThread:
    """Runs functions one at a time, in the thread that is in `run`, in the order in which they are put.

    Example:
        one_thread = OneThread()
        server = Server(one_thread=one_thread)
        server.bind_object(Table(sqlite3.connect("table.db")))
        server.start()
        one_thread.run()                    # until another thread calls `end`
    """

    def __init__(self) -> None:
        self.running: QueuedCall | None = None
        self.has_ended = False
        self._has_returned = fork.free_in_child(threading.Event())
        self.drop_inherited()
        fork.drop_in_child(self)
        call_stack.queues.add(self)

    def drop_inherited(self) -> None:
        """As new: a forked child has no calls of its parent's."""
        # For each call in one of these two there is an item in the third, which `run` waits for.
        self._urgent: deque[QueuedCall] = deque()
        self._waiting: deque[QueuedCall] = deque()
        self._items: SimpleQueue[None] = SimpleQueue()
        self.thread = 0

    def run(self) -> None:
        """Runs what is put, in the calling thread, until `end`."""
        self.thread = threading.get_ident()
        try:
            while True:
                self._items.get()
                if self.has_ended:
                    return
                turn = self._take()
                if turn is not None:
                    self.running = turn
                    turn.run()
                    self.running = None
                    del turn  # it must not be kept while this thread waits for the next one
        finally:
            self.end()
            self._has_returned.set()

    def wait_until_it_has_returned(self, timeout_s: float) -> bool:
        """Waits for `run` to return; False when that takes longer."""
        return self._has_returned.wait(timeout_s)

    def end(self) -> None:
        """Begins no other call: callers of those that wait learn that they have not run. From any thread."""
        self.has_ended = True
        self._items.put(None)
        while (turn := self._take()) is not None:
            turn.set_result(_STOPPING)

    def wrapped(self, fn: Function) -> Callable[..., Promise]:
        """Makes a function that a server calls in place of `fn`, and that returns at once."""
        is_urgent = bool(getattr(fn, PRIORITY, False))

        @functools.wraps(fn)
        def put(*args: Any, **kwargs: Any) -> Promise:
            return self._put(QueuedCall(self, fn, args, kwargs, self._encoded), is_urgent)

        return put

    def call(self, fn: Function, *args: Any) -> Any:
        """Runs a function in its turn, waits for it, and returns or raises what it does."""
        if threading.get_ident() == self.thread:
            return fn(*args)
        turn = self._put(QueuedCall(self, fn, args, {}, lambda value: value))
        try:
            turn.wait()
            result = turn.result()
            if result is _STOPPING:
                raise RuntimeError("the one thread that may run it has ended")
            return result
        finally:
            turn.cancel()  # where this thread was interrupted
            del turn  # the traceback of its exception must not lead back to the exception

    def waits(self) -> list[call_stack.Edge]:
        """That calls which wait for their turn wait for the one that runs; for the detection of deadlocks."""
        running = self.running
        found: list[call_stack.Edge] = []
        if running is None or running.answering is None:
            return found
        for turn in (*self._urgent, *self._waiting):
            if turn.answering is not None:
                name = turn.answering.server
                for address in turn.answering.addresses:
                    here = address, turn.method.decode(errors="replace")
                    there = address, running.method.decode(errors="replace")
                    found.append((here, there, name, name))
        return found

    def _put(self, turn: QueuedCall, is_urgent: bool = False) -> QueuedCall:
        if is_urgent:
            self._urgent.append(turn)
        else:
            self._waiting.append(turn)
        self._items.put(None)
        if self.has_ended:  # `end` may have looked before
            self.end()
        return turn

    def _take(self) -> QueuedCall | None:
        for calls in (self._urgent, self._waiting):
            try:
                return calls.popleft()
            except IndexError:
                pass
        return None

    def _encoded(self, value: Any) -> Any:
        if isinstance(value, CoroutineType):
            value.close()
            raise TypeError(
                f"{value.__qualname__} returned a coroutine to a server that runs one call at a time, in one"
                " thread, which has no event loop. Make it a plain method, or leave out one_at_a_time=True."
            )
        if is_stream(value) and hasattr(type(value), "__next__"):
            return StepByStep(self, value)
        return encode_at_once(value)


class QueuedCall(Promise):
    """A call that runs when its turn has come. It is its own outcome."""

    __slots__ = (
        "_args",
        "_context",
        "_encode",
        "_fn",
        "_kwargs",
        "_one_thread",
        "answering",
        "method",
    )

    def __init__(
        self,
        one_thread: OneThread,
        fn: Function,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        encode: Callable[[Any], Any],
    ) -> None:
        super().__init__()
        self._one_thread = one_thread
        self._fn = fn
        self._args = args
        self._kwargs = kwargs
        self._encode = encode
        self._context = [
            (variable, value)
            for variable, value in contextvars.copy_context().items()
            if variable.name in _CARRIED
        ]
        entry = call_stack.here.record.innermost
        self.answering = None if entry is None else entry[1]
        self.method = b"" if entry is None else entry[3]

    @property
    def has_small_answer(self) -> bool:
        """True if its result, which is there, can be written without waiting for the caller to read."""
        try:
            result = self.result()
        except BaseException:  # of any size
            return False
        if isinstance(result, EncodedResult):
            _, body, views = result.reply
            return not views and len(body) < framing.SMALL
        if isinstance(result, str | bytes):
            return len(result) < framing.SMALL // 4  # of a text each letter may take four bytes
        return type(result) in SCALARS

    def run(self) -> None:
        """In the one thread, when its turn has come."""
        if not self.begin():  # its caller has left
            return
        record = call_stack.here.record
        outer = record.innermost
        try:
            record.innermost = outer, self.answering, None, self.method
            self.set_result(self._run())
        except BaseException as error:
            if not self._is_interruption(error):
                self.set_exception(error)  # SystemExit too: a caller must not end the server
                return
            from concurrent.futures import CancelledError

            self.set_exception(CancelledError("the call was cancelled while it ran"))
            raise
        finally:
            record.innermost = outer
            del self._fn, self._args, self._kwargs, self._context

    def _is_interruption(self, error: BaseException) -> bool:
        """True if the function has not raised it by itself: this thread is to end."""
        if isinstance(error, KeyboardInterrupt):
            return True
        return self._one_thread.has_ended and not isinstance(error, Exception | SystemExit)

    def _run(self) -> Any:
        tokens = [(variable, variable.set(value)) for variable, value in self._context]
        try:
            call_context = call_stack.current_call.get()
            deadline = None if call_context is None else call_context.deadline
            if deadline is not None and deadline < time.monotonic():
                return _LATE
            return self._encode(self._fn(*self._args, **self._kwargs))
        finally:
            for variable, token in tokens:
                variable.reset(token)


class StepByStep(StreamedIterator, Iterator[Any]):
    """An iterator each of whose steps runs in its turn, in the one thread."""

    def __init__(self, one_thread: OneThread, iterator: Iterator[Any]) -> None:
        self._one_thread = one_thread
        self._iterator = iterator

    def __next__(self) -> Any:
        ended, item = self._one_thread.call(_next_of, self._iterator)
        if ended:
            raise StopIteration
        return item

    def close(self) -> None:
        close = getattr(self._iterator, "close", None)
        if close is not None:
            self._one_thread.call(close)


def _next_of(iterator: Iterator[Any]) -> tuple[bool, Any]:
    try:
        return False, next(iterator)
    except StopIteration:
        return True, None
