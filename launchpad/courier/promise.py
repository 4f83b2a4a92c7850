"""A result that isn't known yet, and the callbacks that wait for it.

    waiting ──begin──▶ begun ──set_result, set_exception──▶ done ──▶ callbacks
       ├───────────────set_result, set_exception──────────────▲
       └───────────────cancel─────────────────────────────────┘

If a method returns a Promise, the server gets its thread back at once, and answers when the promise is
done. A Promise does much less than a `concurrent.futures.Future`, because one is made per call and most
are never waited for.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from launchpad.courier.interruptions import Lock

_WAITING, _BEGUN, _DONE = range(3)


class Promise:
    """The outcome of a call that is not known yet.

    Example:
        promise = Promise()
        promise.then(lambda promise: print(promise.result()))
        promise.set_result(3)     # prints 3, in this thread

    The first outcome stays; later ones are ignored. Thread-safe.
    """

    __slots__ = ("_callbacks", "_error", "_lock", "_state", "_value")

    def __init__(self) -> None:
        # Held to change the state, and to add callbacks: a callback is either added before the promise is
        # done, and called then, or called at once.
        self._lock = Lock()
        self._state = _WAITING
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Promise], object]] = []

    @property
    def is_done(self) -> bool:
        return self._state == _DONE

    def then(self, callback: Callable[[Promise], object]) -> None:
        """Call `callback(self)` exactly once: now if the promise is done, else in the thread that ends it."""
        with self._lock:
            if self._state != _DONE:
                self._callbacks.append(callback)
                return
        callback(self)

    def begin(self) -> bool:
        """Note that the work begins; return False if the promise was cancelled, so that it need not."""
        with self._lock:
            if self._state != _WAITING:
                return False
            self._state = _BEGUN
            return True

    def cancel(self) -> bool:
        """Drop the work if it has not begun, with a CancelledError as outcome; return False if it has."""
        from concurrent.futures import CancelledError

        return self._complete(None, CancelledError("cancelled before it began"), _WAITING)

    def set_result(self, value: Any) -> bool:
        """End the promise with a value; return False if it had ended already."""
        return self._complete(value, None, _BEGUN)

    def set_exception(self, error: BaseException) -> bool:
        """End the promise with an exception; return False if it had ended already."""
        return self._complete(None, error, _BEGUN)

    def result(self) -> Any:
        """Return the value, or raise the exception. Never waits: raises RuntimeError if it isn't done."""
        if self._state != _DONE:
            raise RuntimeError("this result is not there yet: `then` and `wait` tell when it is")
        try:
            if self._error is not None:
                raise self._error
            return self._value
        finally:
            del self  # otherwise the exception's traceback would lead back to the exception

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until the promise is done; return False if that takes longer."""
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
            except BaseException:  # this concerns neither the other callbacks nor the caller
                threading.excepthook(
                    threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread()))
                )
        return True
