"""Tools for code that a signal handler's exception may interrupt at any moment (Ctrl-C, an alarm).

CPython checks for signals when a function begins, when a loop repeats, and when a call into C returns. So in
the main thread an exception may come just after `lock.acquire()` has acquired the lock, before the code has
noted that. Code that must not be interrupted halfway is therefore one of these:

- one call into C that also stores its own result: `results.extend(map(function, (argument,)))`
- a row of plain assignments, which call nothing
- code in another thread, which no signal interrupts: `in_another_thread`
- a function marked with `kept_whole`, in a thread that launchpad stops by raising an exception there

`Lock` and `Condition` are written this way. If their `with` is interrupted, it never leaves them held, and
never releases them by mistake.
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
    """Return True if the error interrupted the code, False if the code raised the error itself.

    In the main thread an error counts if a signal handler raised it, or if it isn't an `Exception`
    (KeyboardInterrupt, say). In other threads only an error that launchpad raises to stop a worker counts.
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

    Use it for work that is rare and has several steps, such as starting a thread. Outside the main thread
    it just calls the function, because no signal handler runs there. Raises RuntimeError if no thread can be
    started.
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
            # A finalizer may have called `threading.current_thread()` in this thread, which `_thread`
            # started. Before Python 3.13 that call adds an entry for the thread that nothing else removes.
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
    """Mark a function that launchpad doesn't interrupt.

    Before launchpad interrupts a thread, it waits up to a second until the function has returned there. The
    function must not wait for other threads.

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
    # Python 3.14 checks for signals between a lock's `__enter__`, which is in C, and the block's first line.

    class Lock:
        """A `threading.Lock` whose `with` is never interrupted between the acquisition and the block."""

        # `__exit__` is the wrapped lock's own, in C: no signal can interrupt it before it releases the lock.
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
            # Python doesn't check for signals when a Python function returns to its caller.
            _acquire(self._lock)
            return True

    class RLock(Lock):
        """A `threading.RLock` whose `with` is never interrupted between the acquisition and the block."""

        __slots__ = ()
        _new_lock = staticmethod(threading.RLock)


class Condition(threading.Condition):
    """A `threading.Condition` for threads that may be interrupted."""

    __slots__ = ("__exit__",)

    def __init__(self, lock: Any = None) -> None:
        lock = threading.RLock() if lock is None else lock
        super().__init__(lock)
        self._raw = lock
        # The lock's own `__exit__` is in C, so no signal can interrupt it.
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
                    if not outcomes:  # a signal interrupted the wait for the lock
                        outcomes.extend(map(acquire, arguments))


class Event(threading.Event):
    """A `threading.Event` for threads that may be interrupted while they wait."""

    def __init__(self) -> None:
        super().__init__()
        self._cond = Condition(threading.Lock())
