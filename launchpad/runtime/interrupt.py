"""Interruption of a thread: when `Stopped` may be raised in it, and when not.

    allowed     the user's constructor or run() is on the stack
    forbidden   launchpad is in the middle of something: starting a server, closing

A request that comes while interruption is forbidden takes effect when it is allowed again. If user code
catches `Stopped` by mistake, as a bare `except:` does, and goes on, it is interrupted again.

If a thread runs an event loop, nothing is raised. Instead, the loop's tasks are cancelled, because many loops
lose an error that is raised from outside, or take it for the outcome of whichever task is running.

`call_in` raises nothing: it makes a thread call a function, for the debugger.
"""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from launchpad.courier import fork
from launchpad.courier.interruptions import Lock, is_kept_whole
from launchpad.courier.own_threads import OwnThread
from launchpad.errors import Stopped

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_MAX_WAIT_S = 1.0
_BLOCKED_S = 0.2
# Seconds between two interruptions. The time is random: at a fixed time, all interruptions of a loop in user
# code could hit the same line.
_AGAIN_S = (0.25, 0.75)

# Python's own generator belongs to the user's code, which may have seeded it.
_random = random.Random()


class Interruption:
    """The interruption of a worker's thread: the backend raises `Stopped` in it, only where user code runs.

    Args:
        raise_in_thread: Raises the error in the thread. It must raise `RaisedFromOutside` for the
            interruption to be repeated where user code caught it.
    """

    def __init__(self, raise_in_thread: Callable[[], None] = lambda: None) -> None:
        self.raise_in_thread = raise_in_thread
        #: Called once, with the place where user code caught `Stopped` and went on.
        self.on_caught: Callable[[str], object] = lambda place: None
        # Held to decide about an interruption and to carry it out: nothing is raised in the thread once it
        # has left `allowed` or entered `forbidden`.
        self._lock = fork.free_in_child(Lock())
        self._thread = 0  # the thread in `allowed`
        self._allowed = False
        self._requested = False
        self._done = False
        self._has_ended = threading.Event()
        self._replacement: Callable[[], object] | None = None

    def request(self) -> None:
        """Interrupt the thread now, or as soon as it is allowed. Called from any other thread."""
        with self._lock:
            self._requested = True
            if self._allowed and not self._done:
                self._done = True
                if self._replacement is not None:
                    self._replacement()
                else:
                    self.raise_in_thread()
                    self._start_repeating()

    def give_up(self) -> None:
        """Stop interrupting."""
        self._has_ended.set()

    @contextlib.contextmanager
    def allowed(self) -> Iterator[None]:
        """Allow interruptions in this block, where user code runs in the thread that they interrupt."""
        self._thread = threading.get_ident()
        self._has_ended.clear()
        try:
            self._allow()
            yield
        finally:
            try:
                # Nothing is raised once this block is left.
                with self._lock:
                    self._allowed = False
            finally:
                # Set it again, in case the last error was raised while this thread took the lock.
                self._allowed = False
                self._has_ended.set()
                _raised.pop(self._thread, None)

    @contextlib.contextmanager
    def forbidden(self) -> Iterator[None]:
        """Forbid interruptions in this block, where launchpad's own code runs inside an `allowed` block."""
        was_allowed = self._allowed
        with self._lock:
            self._allowed = False
        try:
            yield
        finally:
            if was_allowed:
                self._allow()

    @contextlib.contextmanager
    def replaced_by(self, interrupt: Callable[[], object]) -> Iterator[None]:
        """Make a request in this block call `interrupt`, once, instead of raising anything."""
        with self._lock:
            self._replacement = interrupt
        try:
            yield
        finally:
            with self._lock:
                self._replacement = None

    def _allow(self) -> None:
        with self._lock:
            self._allowed = True
            if self._requested and not self._done:
                self._done = True
                if self._replacement is None:
                    self._start_repeating()
                    raise RaisedFromOutside
                self._replacement()

    def _start_repeating(self) -> None:
        with contextlib.suppress(RuntimeError):  # no more threads can be started
            OwnThread(target=self._repeat, name="launchpad-interrupt").start()

    def _repeat(self) -> None:
        """Interrupt again whenever user code catches `Stopped` and goes on."""
        is_known = False
        while not self._has_ended.wait(_random.uniform(*_AGAIN_S)):
            with self._lock:
                raised = _raised.get(self._thread)
                # Wait while the error has not been raised yet, because the thread is in C, or while an
                # `except` or `finally` block runs because of it.
                if raised is None or not self._allowed or _is_handled_in(self._thread):
                    continue
                # There is no traceback if a finalizer was interrupted, and Python dropped the error.
                step = raised.__traceback__
                # Code that names `Stopped` caught it on purpose, and ends by itself.
                if step is not None and "Stopped" in step.tb_frame.f_code.co_names:
                    return
                if step is not None and not is_known:
                    self.on_caught(_place_of(step))
                    is_known = True
                del _raised[self._thread]
                # Drop the references to the frames that the error passed.
                del raised, step
                self.raise_in_thread()


_raised: dict[int, Stopped] = {}
"""Thread → the last error raised in it from outside, with the traceback to where it was caught."""


class RaisedFromOutside(Stopped):
    """A `Stopped` that is remembered, so that it can be found after user code caught it."""

    def __init__(self) -> None:
        _raised[threading.get_ident()] = self

    def __reduce__(self) -> tuple[type[Stopped], tuple[()]]:
        return Stopped, ()


# Reports and users' logs show the name that users know.
RaisedFromOutside.__name__ = RaisedFromOutside.__qualname__ = Stopped.__name__
RaisedFromOutside.__module__ = Stopped.__module__


def _is_handled_in(thread: int) -> bool:
    """Return True while an `except` or `finally` block runs in the thread because of `Stopped`."""
    entry: Any = sys._current_exceptions().get(thread)
    # In Python 3.11 the entry is a tuple of type, error and traceback.
    error: BaseException | None = entry[1] if isinstance(entry, tuple) else entry
    while error is not None:
        if isinstance(error, Stopped):
            return True
        error = error.__context__
    return False


def _place_of(step: TracebackType) -> str:
    code = step.tb_frame.f_code
    return f"{code.co_qualname} ({code.co_filename}, line {step.tb_lineno})"


def is_interruption(error: BaseException) -> bool:
    """Return True for `Stopped`, for the end of a cancelled task, and for an error that hides `Stopped`.

    If `Stopped` is raised while a condition takes its lock again, `threading` then releases a lock that it
    does not hold, and that raises RuntimeError.
    """
    asyncio: Any = sys.modules.get("asyncio")
    if asyncio is not None and isinstance(error, asyncio.CancelledError):
        return True
    return isinstance(error, Stopped) or (
        isinstance(error, RuntimeError)
        and isinstance(error.__context__, Stopped)
        and str(error) in ("release unlocked lock", "cannot release un-acquired lock")
    )


def is_consequence(error: BaseException) -> bool:
    """Return True for an interruption, an error raised `from` it, or an exit in the block that caught it.

    An error that is merely raised while an interruption is handled is a different one: the cleanup failed.
    """
    if isinstance(error, SystemExit) and error.__context__ is not None:
        error = error.__context__
    while not is_interruption(error) and error.__cause__ is not None:
        error = error.__cause__
    return is_interruption(error)


def running_loop(thread: threading.Thread) -> AbstractEventLoop | None:
    """Return the event loop, asyncio's or a similar one, that runs in a thread; None if none can be found."""
    asyncio: Any = sys.modules.get("asyncio")
    if asyncio is None:
        return None
    if threading.current_thread() is thread:
        running: AbstractEventLoop | None = asyncio._get_running_loop()
        return running
    frame = sys._current_frames().get(thread.ident or 0)
    loop: AbstractEventLoop | None = None
    while frame is not None and loop is None:
        if frame.f_code is asyncio.BaseEventLoop.run_forever.__code__:
            loop = frame.f_locals["self"]
        elif frame.f_code is asyncio.Runner.run.__code__:  # the loop may be in C
            loop = frame.f_locals["self"]._loop
        frame = frame.f_back
    return loop if loop is not None and loop.is_running() else None


def end_loop(loop: AbstractEventLoop) -> None:
    """Cancel all tasks of a running loop, or stop it if it has none. Works in threads and signal handlers.

    Raises:
        RuntimeError: the loop is closed.
    """
    import asyncio

    def end() -> None:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if not tasks:
            loop.stop()

    loop.call_soon_threadsafe(end)


def interrupt_thread(thread: threading.Thread) -> None:
    """Raise `Stopped` in the thread, or end the event loop that runs there."""
    loop = running_loop(thread)
    if loop is not None:
        with contextlib.suppress(RuntimeError):
            end_loop(loop)
            return
    raise_in(thread, RaisedFromOutside)


def raise_in(thread: threading.Thread, error: type[BaseException] = Stopped) -> None:
    """Raise an error in the thread at its next bytecode. A thread that blocks in C gets it afterwards.

    Wait, for a second at most, while the thread is

    - importing: other threads would see a module that is only half executed
    - in a function that is kept whole: sockets that it has made would be lost
    - starting a thread: CPython briefly gives the new thread its parent's identity, and so the exception
    - entering a `with lock`: since 3.14 the error could be raised when the lock is held but the block has not
      begun, and nothing would release the lock
    """
    began = time.monotonic()
    moved_at = began
    last_place = None
    while True:
        now = time.monotonic()
        if now - began >= _MAX_WAIT_S:
            break
        # Sleep first, so that this thread's turn to run is new: no other thread may run before the exception
        # is set.
        time.sleep(0.0005)
        frame = sys._current_frames().get(thread.ident or 0)
        if frame is not None:
            place = frame, frame.f_lasti
            if place != last_place:
                moved_at = now
            last_place = place
            if _is_entering(frame, is_blocked=now - moved_at > _BLOCKED_S):
                continue
        while frame is not None:
            code = frame.f_code
            is_importing = code.co_filename.startswith("<frozen importlib")
            if is_importing or code is _START or is_kept_whole(code):
                break
            frame = frame.f_back
        else:
            break
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(error)
    )


_START = inspect.unwrap(threading.Thread.start).__code__
_CONDITION = threading.Condition.__enter__.__code__
_IS_RAISED_AFTER_ENTER = sys.version_info >= (3, 14)
_TURNS = ("RESUME", "JUMP_BACKWARD")
_ASKS = (*_TURNS, "CALL", "CALL_KW", "CALL_FUNCTION_EX")
"""Instructions at whose end CPython lets other threads run, and then raises an exception that was set."""

_LEAVES = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "RETURN_VALUE", "RERAISE")


def _is_entering(frame: FrameType, is_blocked: bool) -> bool:
    """Return True if an error set now may be raised after a lock's `__enter__` returned, before its block.

    That is so for a thread that waits for the lock. It is also so for a thread that waits for its turn to
    run, if the next instruction that checks for exceptions is the call of `__enter__`.

    Args:
        is_blocked: True if the thread has been at this instruction for some time: a thread in a call is then
            blocked there, and not just waiting for its turn.
    """
    if frame.f_code is _CONDITION:
        return True
    if not _IS_RAISED_AFTER_ENTER:
        return False
    import dis

    code: list[Any] = list(dis.get_instructions(frame.f_code))  # with jump_target since Python 3.13
    places = {instruction.offset: i for i, instruction in enumerate(code)}
    enters = {i + 1 for i, instruction in enumerate(code) if instruction.opname == "LOAD_SPECIAL"}
    position = places.get(frame.f_lasti, 0)
    if is_blocked and position not in enters and code[position].opname not in _TURNS:
        return False
    reached = set[int]()
    todo = [position]
    while todo:
        i = todo.pop()
        if i in enters and code[i].opname == "CALL":
            return True
        if i not in reached and (i == position or code[i].opname not in _ASKS):
            todo += [places[target] for target in (code[i].jump_target,) if target is not None]
            todo += [i + 1] if i + 1 < len(code) and code[i].opname not in _LEAVES else []
        reached.add(i)
    return False


def call_in(thread: threading.Thread, function: Callable[[FrameType], object]) -> None:
    """Make a thread call `function(frame)` at its next line. Needs Python 3.12.

    All threads are traced for a moment, which ends any other tracing, such as coverage.
    """

    def trace(frame: FrameType, event: str, arg: object) -> None:
        sys.settrace(None)
        if threading.get_ident() == thread.ident:
            function(frame)

    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        frame.f_trace = trace
        frame = frame.f_back
    of_new_threads = threading.gettrace()
    trace_all: Any = getattr(threading, "settrace_all_threads")  # noqa: B009 - mypy checks for Python 3.11
    trace_all(trace)
    threading.settrace(of_new_threads)
