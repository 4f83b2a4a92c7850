"""Calls that run one at a time, all in the one thread that runs `OneThread.run`.

    a thread of the pool ──put──▶ waiting ──▶ the one thread runs it, encodes its result ──▶ the pool answers

The pool gets a Promise, and its thread is free again at once. So calls that wait for their turn occupy no
threads. The one thread encodes each result before the next call may change it.
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
from typing import Any, Protocol

from launchpad.courier import call_stack, caller, fork
from launchpad.courier.codec.iterators import StreamedIterator, is_stream
from launchpad.courier.codec.pickling import SCALARS
from launchpad.courier.promise import Promise
from launchpad.courier.protocol import framing
from launchpad.courier.server.decorators import PRIORITY
from launchpad.courier.server.replies import EncodedResult, encode_at_once

Function = Callable[..., Any]
# The context variables that a call brings with it: its deadline, its caller, the span of OpenTelemetry. All
# other variables, such as that of `decimal`, have the values of the one thread.
_CARRIED = {call_stack.current_call.name, caller.current.name, "current_context"}
_STOPPING = EncodedResult((framing.NOT_RUN, framing.STOPPING, []))
_LATE = EncodedResult((framing.NOT_RUN, framing.LATE, []))


class ReadsCalls(Protocol):
    """A pool that reads a server's calls, in the one thread or in other threads that take over."""

    def poll_and_serve(self) -> None: ...

    def run_queued(self, call: WaitingCall) -> None: ...

    def take_over(self) -> None: ...

    def wake_poller(self) -> None: ...


class WaitingCall(Protocol):
    """A call that waits for its turn in the one thread."""

    method: bytes

    def run(self) -> None: ...

    def abandon(self) -> None: ...


class OneThread:
    """An executor that runs functions one at a time, in the thread that called `run`.

    Example:
        one_thread = OneThread()
        server = Server(one_thread=one_thread)
        server.bind_object(Table(sqlite3.connect("table.db")))
        server.start()
        one_thread.run()                    # until another thread calls `end`

    Attributes:
        thread: The identifier of that thread; 0 before `run`.
        leads: True if the thread itself reads the calls of its server, whenever it runs no call.
        in_call_since: The time by `time.monotonic()` at which the running call began; 0 if no call runs.
        n_calls: The number of calls that have begun.
        on_next_call: Called once, when the next call begins.
    """

    def __init__(self) -> None:
        self.has_ended = False
        self._refuses = False
        self._has_returned = fork.free_in_child(threading.Event())
        self._pool: ReadsCalls | None = None
        self._interruption: BaseException | None = None
        self.drop_inherited()
        fork.drop_in_child(self)
        call_stack.queues.add(self)

    def drop_inherited(self) -> None:
        """Begin without calls, in a new object or in a forked child: waiting calls belong to the parent."""
        self._own: deque[WaitingCall] = deque()  # calls made with `call`
        self._urgent: deque[WaitingCall] = deque()
        self._waiting: deque[WaitingCall] = deque()
        # While there is no pool, `run` waits for this queue.
        self._changed: SimpleQueue[None] = SimpleQueue()
        self.thread = 0
        self.leads = False
        self.in_call_since = 0.0
        self.n_calls = 0
        self.on_next_call: Callable[[], object] | None = None

    def serve_for(self, pool: ReadsCalls | None) -> None:
        """Make `run` also read the calls of this pool's server. With None, `run` reads no calls."""
        self._pool = pool
        self.leads = False
        self._changed.put(None)

    def run(self) -> None:
        """Run the calls that are put or read, in the calling thread, until `end` is called."""
        self.thread = threading.get_ident()
        self._record = call_stack.here.record
        try:
            while not self.has_ended:
                call = _pop_first(self._own, self._urgent, self._waiting)
                pool = self._pool
                if call is not None:
                    if pool is None:
                        call.run()
                    else:
                        pool.run_queued(call)
                    # Don't keep the call alive while this thread waits for the next one.
                    del call
                elif pool is None:
                    self._changed.get()
                else:
                    pool.poll_and_serve()
                if self._interruption is not None:
                    raise self._interruption
        finally:
            self.leads = False
            self.end()
            self._has_returned.set()
            if self._pool is not None:
                self._pool.take_over()

    @property
    def has_work(self) -> bool:
        """True if `run` has something to do without reading first."""
        return self.has_ended or bool(self._own or self._urgent or self._waiting)

    def wait_until_it_has_returned(self, timeout_s: float) -> bool:
        """Wait for `run` to return. Return False if that takes longer than the timeout."""
        return self._has_returned.wait(timeout_s)

    def refuse(self) -> None:
        """Begin no more calls of the server. The callers of waiting calls learn that these did not run.

        Functions given to `call` still run. Thread-safe.
        """
        # This must come first. A thread that adds a call looks at this flag afterwards, and then refuses
        # the call itself.
        self._refuses = True
        _abandon_all(self._urgent, self._waiting)

    def end(self) -> None:
        """Refuse calls of all kinds, and make `run` return. Thread-safe."""
        self.has_ended = True
        self._wake()
        self.refuse()
        _abandon_all(self._own)

    def wrapped(self, fn: Function) -> Function:
        """Return the function that a server calls instead of `fn`.

        That function returns a Promise, unless the one thread itself calls it and the result is small.
        """
        is_urgent = bool(getattr(fn, PRIORITY, False))

        @functools.wraps(fn)
        def run_or_put(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == self.thread and self.leads:
                return self._small_or_promised(self.timed(fn, args, kwargs))
            call = QueuedCall(self, fn, args, kwargs, self._encoded)
            self.put(call, is_urgent=is_urgent)
            return call

        return run_or_put

    def call(self, fn: Function, *args: Any) -> Any:
        """Run a function when its turn comes, and wait for it. Return or raise what it returns or raises."""
        if threading.get_ident() == self.thread:
            return fn(*args)
        call = QueuedCall(self, fn, args, {}, lambda value: value)
        self._own.append(call)
        self._wake()
        # `end` may have emptied the queues just before this call was added.
        if self.has_ended:
            self.end()
        try:
            call.wait()
            result = call.result()
            if result is _STOPPING:
                raise RuntimeError("the one thread that may run it has ended")
            return result
        finally:
            call.cancel()  # in case this thread was interrupted while it waited
            del call  # otherwise the exception's traceback would lead back to the exception

    def put(self, call: WaitingCall, *, is_urgent: bool = False) -> None:
        """Queue a call, which runs when its turn comes. Returns at once. Thread-safe."""
        if is_urgent:
            self._urgent.append(call)
        else:
            self._waiting.append(call)
        self._wake()
        # `refuse` may have emptied the queues just before this call was added.
        if self._refuses:
            self.refuse()

    def waits(self) -> list[call_stack.Edge]:
        """Return an edge from each waiting call to the call that runs, for the detection of deadlocks."""
        entry = self._record.innermost if self.in_call_since else None
        answering = None
        method = b""
        while entry is not None and answering is None:
            entry, answering, _, method = entry
        edges: list[call_stack.Edge] = []
        if answering is None:
            return edges
        for call in (*self._urgent, *self._waiting):
            for address in answering.addresses:
                waiting_call = address, call.method.decode(errors="replace")
                running_call = address, method.decode(errors="replace")
                edges.append((waiting_call, running_call, answering.server, answering.server))
        return edges

    def timed(self, fn: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function in the one thread. Record when it began, for the threads that watch it."""
        self.n_calls += 1
        on_next_call = self.on_next_call
        if on_next_call is not None:
            self.on_next_call = None
            on_next_call()
        self.in_call_since = time.monotonic()
        try:
            return fn(*args, **kwargs)
        except BaseException as error:
            if not self._is_interruption(error):
                raise
            from concurrent.futures import CancelledError

            self._interruption = error
            raise CancelledError("the call was cancelled while it ran") from None
        finally:
            self.in_call_since = 0.0

    def _is_interruption(self, error: BaseException) -> bool:
        """Return True if the function did not raise the error by itself, so that this thread should end."""
        if isinstance(error, KeyboardInterrupt):
            return True
        return self.has_ended and not isinstance(error, Exception | SystemExit)

    def _wake(self) -> None:
        pool = self._pool
        if pool is None:
            self._changed.put(None)
        else:
            pool.wake_poller()

    def _small_or_promised(self, value: Any) -> Any:
        """Return a small result, for this thread to send, or a Promise, for another thread to answer."""
        outcome = self._encoded(value)
        if is_small(outcome):
            return outcome
        promise = Promise()
        promise.set_result(outcome)
        return promise

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


def _pop_first(*queues: deque[WaitingCall]) -> WaitingCall | None:
    """Remove and return the first call of the first queue that isn't empty. None if all are empty."""
    for calls in queues:
        try:
            return calls.popleft()
        except IndexError:
            pass
    return None


def _abandon_all(*queues: deque[WaitingCall]) -> None:
    """Abandon the calls in the queues, and those that other threads add at the same time."""
    while True:
        call = _pop_first(*queues)
        if call is None:
            return
        call.abandon()


def is_small(outcome: Any) -> bool:
    """Return True if the outcome can be written without waiting for the caller to read."""
    if isinstance(outcome, EncodedResult):
        _, body, views = outcome.reply
        return not views and len(body) < framing.SMALL
    if isinstance(outcome, str | bytes):
        return len(outcome) < framing.SMALL // 4  # each character of a text may take four bytes
    return type(outcome) in SCALARS


class QueuedCall(Promise):
    """A call that runs when its turn comes. It is the promise of its own outcome."""

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
        """True if the answer can be written without waiting for the caller to read. The call must be done."""
        try:
            return is_small(self.result())
        except BaseException:  # an exception may have any size
            return False

    def abandon(self) -> None:
        """End the call with the answer that it did not run, and never will."""
        self.set_result(_STOPPING)

    def run(self) -> None:
        """Run the call, in the one thread, when its turn comes."""
        if not self.begin():  # it was cancelled, because its caller has left
            return
        record = call_stack.here.record
        outer = record.innermost
        try:
            record.innermost = outer, self.answering, None, self.method
            self.set_result(self._run())
        except BaseException as error:  # SystemExit too: a caller must not end the server
            self.set_exception(error)
        finally:
            record.innermost = outer
            del self._fn, self._args, self._kwargs, self._context

    def _run(self) -> Any:
        tokens = [(variable, variable.set(value)) for variable, value in self._context]
        try:
            call_context = call_stack.current_call.get()
            deadline = None if call_context is None else call_context.deadline
            if deadline is not None and deadline < time.monotonic():
                return _LATE
            return self._encode(self._one_thread.timed(self._fn, self._args, self._kwargs))
        finally:
            for variable, token in tokens:
                variable.reset(token)


class StepByStep(StreamedIterator, Iterator[Any]):
    """An iterator whose steps run in the one thread, each when its turn comes."""

    def __init__(self, one_thread: OneThread, iterator: Iterator[Any]) -> None:
        self._one_thread = one_thread
        self._iterator = iterator

    def __next__(self) -> Any:
        is_over, item = self._one_thread.call(_next_of, self._iterator)
        if is_over:
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
