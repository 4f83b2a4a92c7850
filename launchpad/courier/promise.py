"""A result that isn't known yet, and the callbacks that wait for it.

    waiting ──begin──▶ begun ──set_result, set_exception──▶ done ──▶ callbacks
       ├───────────────set_result, set_exception──────────────▲
       └───────────────cancel─────────────────────────────────┘

If a method returns a Promise, the method's thread is free again at once, and the server answers when the
promise is done. A Promise does much less than a `concurrent.futures.Future`: every call makes one, and no
thread waits for most of them.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from launchpad.courier.interruptions import Lock

_WAITING, _BEGUN, _DONE = range(3)


class Promise:
    """The outcome of a call, which may not be known yet.

    Example:
        promise = Promise()
        promise.then(lambda promise: print(promise.result()))
        promise.set_result(3)     # prints 3, in this thread

    The first outcome stays; later ones are ignored. Thread-safe.
    """

    __slots__ = ("_callbacks", "_error", "_lock", "_state", "_value")

    def __init__(self) -> None:
        # This lock is held to change the state and to add callbacks. So a callback is either added before
        # the promise is done, and called when it is done, or called at once.
        self._lock = Lock()
        self._state = _WAITING
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Promise], object]] = []

    @property
    def is_done(self) -> bool:
        return self._state == _DONE

    def then(self, callback: Callable[[Promise], object]) -> None:
        """Call `callback(self)` once: now if the promise is done, otherwise in the thread that ends it."""
        with self._lock:
            if self._state != _DONE:
                self._callbacks.append(callback)
                return
        callback(self)

    def begin(self) -> bool:
        """Note that the work begins. Return False if the promise was cancelled: then don't do the work."""
        with self._lock:
            if self._state != _WAITING:
                return False
            self._state = _BEGUN
            return True

    def cancel(self) -> bool:
        """End the promise with a CancelledError. Return False if the work has already begun."""
        from concurrent.futures import CancelledError

        return self._complete(None, CancelledError("cancelled before it began"), _WAITING)

    def set_result(self, value: Any) -> bool:
        """End the promise with a value. Return False if the promise had already ended."""
        return self._complete(value, None, _BEGUN)

    def set_exception(self, error: BaseException) -> bool:
        """End the promise with an exception. Return False if the promise had already ended."""
        return self._complete(None, error, _BEGUN)

    def result(self) -> Any:
        """Return the value or raise the exception. Never waits: raises RuntimeError before there is one."""
        if self._state != _DONE:
            raise RuntimeError("this result is not there yet: `then` and `wait` tell when it is")
        try:
            if self._error is not None:
                raise self._error
            return self._value
        finally:
            del self  # otherwise the exception's traceback would lead back to the exception

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until the promise is done. Return False if that takes longer than the timeout."""
        waiter = Lock()
        waiter.acquire()
        self.then(lambda _: waiter.release())
        return waiter.acquire(timeout=-1 if timeout_s is None else max(0.0, timeout_s))

    def _complete(self, value: Any, error: BaseException | None, latest: int) -> bool:
        with self._lock:
            if self._state > latest:
                return False
            self._value = value
            self._error = error
            self._state = _DONE
            callbacks = self._callbacks
            self._callbacks = []
        for callback in callbacks:
            try:
                callback(self)
            except BaseException:  # the other callbacks still run; the caller doesn't see the error
                threading.excepthook(
                    threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread()))
                )
        return True
