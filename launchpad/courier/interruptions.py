"""Tools for code that a signal handler's exception may interrupt at any moment (Ctrl-C, an alarm).

CPython checks for signals when a function begins, when a loop repeats, and when a call into C returns. So in
the main thread an exception may come just after `lock.acquire()` has taken the lock, before anything knows
of it. Code that must not be interrupted halfway is therefore one of these:

- one call into C that also stores its own result: `results.extend(map(function, (argument,)))`
- a row of plain assignments, which call nothing
- code in another thread, which no signal interrupts: `in_another_thread`
- where launchpad itself raises to stop a worker that is a thread, a function marked with `kept_whole`

`Lock` and `Condition` are written this way: an interrupted `with` never leaves them held, and never releases
them by mistake.
"""

from __future__ import annotations

import _thread
import functools
import inspect
import signal
import sys
import threading
from collections.abc import Callable
from itertools import starmap
from types import CodeType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")

_WAIT = (True,)  # the argument of `acquire`
_NO_ARGUMENTS: tuple[tuple[()]] = ((),)


def is_interruption(error: BaseException) -> bool:
    """Return True if the error interrupted the code that ran, so that the code did not raise it itself.

    In the main thread an error counts if a signal handler raised it, or if it isn't an `Exception`:
    KeyboardInterrupt, say. In other threads only what launchpad raises there to stop a worker counts.
    """
    if threading.get_ident() != threading.main_thread().ident:
        return not isinstance(error, Exception | SystemExit | KeyboardInterrupt | GeneratorExit)
    if not isinstance(error, Exception):
        return True
    handlers = {_code(signal.getsignal(number)) for number in signal.valid_signals()}
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code in handlers:
            return True
        step = step.tb_next
    return False


def _code(handler: Any) -> object:
    while isinstance(handler, functools.partial):
        handler = handler.func
    if callable(handler) and not inspect.isroutine(handler):
        handler = type(handler).__call__
    return getattr(handler, "__code__", handler)


def in_another_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call the function in a new thread, where it runs to its end even if this thread is interrupted.

    Use it for what is rare and has several steps, such as starting a thread. No signal handler runs outside
    the main thread, so there this just calls the function. Raises RuntimeError if no thread can be started.
    """
    if threading.get_ident() != threading.main_thread().ident:
        return function(*args, **kwargs)
    results: list[T] = []
    errors: list[BaseException] = []
    has_ended = threading.Lock()
    has_ended.acquire()

    def run() -> None:
        try:
            results.append(function(*args, **kwargs))
        except BaseException as error:
            errors.append(error)
        finally:
            # A finalizer may have called `threading.current_thread()` in this thread. Before Python 3.13
            # that adds an entry for a thread of `_thread`, and nothing else removes it.
            active: Any = threading
            active._active.pop(threading.get_ident(), None)
            has_ended.release()

    _thread.start_new_thread(run, ())
    has_ended.acquire()
    if errors:
        raise errors.pop()
    return results.pop()


_whole: set[CodeType] = set()


def kept_whole(function: Callable[P, T]) -> Callable[P, T]:
    """Mark a function that launchpad doesn't interrupt, for a second at most.

    The function must not wait for other threads.

    Example:
        @kept_whole
        def connect(address: str) -> socket.socket: …
    """
    _whole.add(function.__code__)
    return function


def is_kept_whole(code: CodeType) -> bool:
    """Return True if the code belongs to a function marked with `kept_whole`."""
    return code in _whole


def _acquire(lock: Any) -> None:
    """Acquire the lock. If this raises, the lock isn't held."""
    outcomes: list[bool] = []
    try:
        outcomes.extend(map(lock.acquire, _WAIT))
    except BaseException:
        if outcomes:
            lock.release()
        raise


if TYPE_CHECKING or sys.version_info < (3, 14):
    Lock = threading.Lock
    RLock = threading.RLock
else:
    # Python 3.14 checks for signals between the end of a lock's `__enter__`, which is in C, and the block.

    class Lock:
        """A `threading.Lock` whose `with` is never interrupted between the acquisition and the block."""

        # `__exit__` is the lock's own, in C: no signal can interrupt it before it has released the lock.
        __slots__ = (
            "__exit__",
            "__weakref__",
            "_at_fork_reinit",
            "_lock",
            "acquire",
            "locked",
            "release",
        )

        _new_lock = staticmethod(threading.Lock)

        def __init__(self) -> None:
            self._lock = self._new_lock()
            self.acquire = self._lock.acquire
            self.release = self._lock.release
            self.locked = getattr(self._lock, "locked", None)
            self.__exit__ = self._lock.__exit__
            self._at_fork_reinit = self._lock._at_fork_reinit  # type: ignore[attr-defined]

        def __enter__(self) -> bool:
            # Python doesn't check for signals between the return of a Python function and its caller.
            _acquire(self._lock)
            return True

    class RLock(Lock):
        """A `threading.RLock` whose `with` is like that of `Lock`."""

        __slots__ = ()
        _new_lock = staticmethod(threading.RLock)


class Condition(threading.Condition):
    """A `threading.Condition` for threads that may be interrupted."""

    __slots__ = ("__exit__",)

    def __init__(self, lock: Any = None) -> None:
        lock = threading.RLock() if lock is None else lock
        super().__init__(lock)
        self._raw = lock
        # It is in C, like that of `Lock`.
        self.__exit__ = lock.__exit__  # type: ignore[method-assign]

    def __enter__(self) -> bool:
        _acquire(self._raw)
        return True

    def wait(self, timeout: float | None = None) -> bool:
        waiter = threading.Lock()
        waiter.acquire()
        waiters: Any = self._waiters  # type: ignore[attr-defined]
        waiters.append(waiter)
        is_notified = False
        try:
            if timeout is None:
                is_notified = self.without(waiter.acquire)
            elif timeout > 0:
                is_notified = self.without(waiter.acquire, timeout=timeout)
            else:
                is_notified = self.without(waiter.acquire, False)
        finally:
            if not is_notified and waiter in waiters:
                waiters.remove(waiter)
        return is_notified

    def without(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Release the lock, which this thread holds, call the function, and acquire the lock again."""
        lock = self._raw
        is_reentrant = hasattr(lock, "_release_save")
        release = lock._release_save if is_reentrant else lock.release
        acquire = lock._acquire_restore if is_reentrant else lock.acquire
        states: list[Any] = []
        outcomes: list[Any] = []
        try:
            states.extend(starmap(release, _NO_ARGUMENTS))
            return function(*args, **kwargs)
        finally:
            if states:
                arguments = states if is_reentrant else _WAIT
                try:
                    outcomes.extend(map(acquire, arguments))
                finally:
                    if not outcomes:  # a signal came while this thread waited for the lock
                        outcomes.extend(map(acquire, arguments))


class Event(threading.Event):
    """A `threading.Event` for threads that may be interrupted while they wait."""

    def __init__(self) -> None:
        super().__init__()
        self._cond = Condition(threading.Lock())
