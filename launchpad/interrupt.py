"""Interrupting a thread: when `Stopped` may be raised in it, and when not.

    allowed     the user's constructor or run() is on the stack
    forbidden   launchpad is in the middle of something: starting a server, closing

A request while it is forbidden takes effect when it is allowed again.

Without raising anything, `call_in` has a thread call a function, for the debugger.
"""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from launchpad.courier import fork
from launchpad.courier.interruptions import Lock
from launchpad.errors import Stopped

_MAX_WAIT_S, _BLOCKED_S = 1.0, 0.2


class Interruption:
    """Raises `Stopped` in a worker's thread, by the backend, at most once, and only where user code runs."""

    def __init__(self, raise_in_thread: Callable[[], None] = lambda: None) -> None:
        self.raise_in_thread = raise_in_thread
        self._lock = fork.free_in_child(Lock())
        self._allowed = False
        self._requested = False
        self._done = False
        self._replacement: Callable[[], object] | None = None

    def request(self) -> None:
        """Interrupts now or as soon as it is allowed. Called from any other thread."""
        with self._lock:
            self._requested = True
            if self._allowed and not self._done:
                self._done = True
                (self._replacement or self.raise_in_thread)()

    @contextlib.contextmanager
    def allowed(self) -> Iterator[None]:
        """User code runs in this block, in the thread that `raise_in_thread` interrupts."""
        self._allow()
        try:
            yield
        finally:
            with self._lock:
                self._allowed = False

    @contextlib.contextmanager
    def forbidden(self) -> Iterator[None]:
        """Launchpad's own code runs in this block, inside an `allowed` one."""
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
        """In this block a request calls that, once, and nothing is raised."""
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
                    raise Stopped
                self._replacement()


def is_interruption(error: BaseException) -> bool:
    """True for `Stopped`, and for what hides it if it is raised while a condition takes its lock again.

    `threading` then releases a lock that it does not hold, and that fails.
    """
    return isinstance(error, Stopped) or (
        isinstance(error, RuntimeError)
        and isinstance(error.__context__, Stopped)
        and str(error) in ("release unlocked lock", "cannot release un-acquired lock")
    )


def raise_in(thread: threading.Thread, error: type[BaseException] = Stopped) -> None:
    """Raises an error in the thread at its next bytecode. A thread that blocks in C gets it afterwards.

    Waits, for a second at most, while the thread is

    - importing: other threads would see a module that is only half executed
    - starting a thread: CPython gives that the identity of its parent for a moment, and with it the exception
    - entering a `with lock`: since 3.14 it could be raised when the lock is held and its block not yet begun,
      and nothing would release it
    """
    began = moved = time.monotonic()
    place = None
    while (now := time.monotonic()) - began < _MAX_WAIT_S:
        time.sleep(0.0005)  # so that no other thread gets its turn before the exception is set
        frame = sys._current_frames().get(thread.ident or 0)
        if frame is not None:
            if place != (place := (frame, frame.f_lasti)):
                moved = now
            if _is_entering(frame, is_blocked=now - moved > _BLOCKED_S):
                continue
        while frame is not None:
            code = frame.f_code
            if code.co_filename.startswith("<frozen importlib") or code is _START:
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
"""At the end of these CPython lets other threads run, and then raises what was set before."""

_LEAVES = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "RETURN_VALUE", "RERAISE")


def _is_entering(frame: FrameType, is_blocked: bool) -> bool:
    """Whether what is set now may be raised when `__enter__` of a lock has returned, and before its block.

    True for a thread that waits for the lock; and for one that waits for its turn to run, when the next
    instruction that asks is the call of `__enter__`.

    Args:
        is_blocked: It has been there for so long that it does not wait for its turn, if it is in a call.
    """
    if frame.f_code is _CONDITION:
        return True
    if not _IS_RAISED_AFTER_ENTER:
        return False
    import dis

    code: list[Any] = list(dis.get_instructions(frame.f_code))  # with jump_target since Python 3.13
    places = {each.offset: i for i, each in enumerate(code)}
    enters = {i + 1 for i, each in enumerate(code) if each.opname == "LOAD_SPECIAL"}
    here = places.get(frame.f_lasti, 0)
    if is_blocked and here not in enters and code[here].opname not in _TURNS:
        return False
    reached, todo = set[int](), [here]
    while todo:
        i = todo.pop()
        if i in enters and code[i].opname == "CALL":
            return True
        if i not in reached and (i == here or code[i].opname not in _ASKS):
            todo += [places[target] for target in (code[i].jump_target,) if target is not None]
            todo += [i + 1] if i + 1 < len(code) and code[i].opname not in _LEAVES else []
        reached.add(i)
    return False


def call_in(thread: threading.Thread, function: Callable[[FrameType], object]) -> None:
    """Has a thread call a function at its next line, with its frame. Only since Python 3.12.

    All threads are traced for a moment: what traces them otherwise, such as coverage, ends.
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
