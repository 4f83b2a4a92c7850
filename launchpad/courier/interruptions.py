"""Exceptions from outside, at any moment: those of signal handlers, in the main thread (Ctrl-C, an alarm).

CPython looks for signals when a function begins, when a loop turns, and when a call into C has returned. So
such an exception may come just after `lock.acquire()` has taken the lock, and before anything knows of it.
What must be whole is therefore

- one call into C, with what it returns kept by that same call: `results.extend(map(function, (argument,)))`
- or a row of plain assignments, in which nothing is called
- or done in another thread, which no signal interrupts: `in_another_thread`

- or, where launchpad itself raises to stop a worker that is a thread, in a function that is `kept_whole`

`Lock` and `Condition` are made so: an interrupted `with` never leaves them held, nor released by mistake.
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
    """True if the code that we ran has not raised this itself: it was interrupted by a signal handler.

    In the main thread an exception that is no `Exception`, such as KeyboardInterrupt, always counts as one.
    In others only what launchpad itself raises there to stop a worker does.
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
    """Call the function, which runs to its end even if this thread is interrupted while it waits for it.

    For what is rare and has several steps, such as starting a thread. In other threads than the main one, in
    which no signal handler runs, it is just called. Raises RuntimeError when there can be no more threads.
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
            # Collected garbage may have asked for `threading.current_thread()` here. Before Python 3.13 that
            # makes an entry for a thread of `_thread`, which stays.
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
    """Mark a function that launchpad does not interrupt, for a second at most. It must not wait for others.

    Example:
        @kept_whole
        def connect(address: str) -> socket.socket: …
    """
    _whole.add(function.__code__)
    return function


def is_kept_whole(code: CodeType) -> bool:
    """True if the code is that of a function which is `kept_whole`."""
    return code in _whole


def _acquire(lock: Any) -> None:
    """Take the lock; when this raises, it has not."""
    held: list[bool] = []
    try:
        held.extend(map(lock.acquire, _WAIT))
    except BaseException:
        if held:
            lock.release()
        raise


if TYPE_CHECKING or sys.version_info < (3, 14):
    Lock = threading.Lock
    RLock = threading.RLock
else:
    # Python 3.14 looks for signals between the end of a lock's `__enter__`, which is in C, and the block.

    class Lock:
        """As `threading.Lock`; its `with` is not interrupted between the lock's acquisition and the block."""

        # `__exit__` is the lock's own, in C: it cannot be interrupted before it has released the lock.
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
            # Between the end of a function in Python and its caller nothing looks for signals.
            _acquire(self._lock)
            return True

    class RLock(Lock):
        """As `threading.RLock`; its `with` is like that of `Lock`."""

        __slots__ = ()
        _new_lock = staticmethod(threading.RLock)


class Condition(threading.Condition):
    """As `threading.Condition`, for threads that may be interrupted."""

    __slots__ = ("__exit__",)

    def __init__(self, lock: Any = None) -> None:
        lock = threading.RLock() if lock is None else lock
        super().__init__(lock)
        self._raw = lock
        # In C, as `Lock`'s.
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
        """Call the function while the lock, which this thread has, is released; then it has it again."""
        lock = self._raw
        is_reentrant = hasattr(lock, "_release_save")
        release = lock._release_save if is_reentrant else lock.release
        acquire = lock._acquire_restore if is_reentrant else lock.acquire
        states: list[Any] = []
        held: list[Any] = []
        try:
            states.extend(starmap(release, _NO_ARGUMENTS))
            return function(*args, **kwargs)
        finally:
            if states:
                arguments = states if is_reentrant else _WAIT
                try:
                    held.extend(map(acquire, arguments))
                finally:
                    if not held:  # a signal came while it waited for the lock
                        held.extend(map(acquire, arguments))


class Event(threading.Event):
    """As `threading.Event`, for threads that may be interrupted while they wait."""

    def __init__(self) -> None:
        super().__init__()
        self._cond = Condition(threading.Lock())
