"""A result that is not there yet, and what waits for it.

    waiting ──begin──▶ begun ──set_result, set_exception──▶ done ──▶ callbacks
       ├───────────────set_result, set_exception──────────────▲
       └───────────────cancel─────────────────────────────────┘

A server whose method returns a Promise takes its thread back at once, and answers when it is done.
Much less than a `concurrent.futures.Future`: one is made per call, and most are never waited for.
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

    The first outcome stays, later ones are ignored. Safe from any thread.
    """

    __slots__ = ("_callbacks", "_error", "_lock", "_state", "_value")

    def __init__(self) -> None:
        self._lock = Lock()
        self._state = _WAITING
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Promise], object]] = []

    @property
    def is_done(self) -> bool:
        return self._state == _DONE

    def then(self, callback: Callable[[Promise], object]) -> None:
        """Calls `callback(self)` exactly once: when done, in the thread that ends it; now, if it is done."""
        with self._lock:
            if self._state != _DONE:
                self._callbacks.append(callback)
                return
        callback(self)

    def begin(self) -> bool:
        """Says that the work begins; False if it need not, because it was cancelled."""
        with self._lock:
            if self._state != _WAITING:
                return False
            self._state = _BEGUN
            return True

    def cancel(self) -> bool:
        """Drops the work if it has not begun; False if it has. The outcome is then a CancelledError."""
        from concurrent.futures import CancelledError

        return self._complete(None, CancelledError("cancelled before it began"), _WAITING)

    def set_result(self, value: Any) -> bool:
        """Ends it with a value; False if it had ended already."""
        return self._complete(value, None, _BEGUN)

    def set_exception(self, error: BaseException) -> bool:
        """Ends it with an exception; False if it had ended already."""
        return self._complete(None, error, _BEGUN)

    def result(self) -> Any:
        """The value, or raises the exception. Does not wait: RuntimeError while it is not done."""
        if self._state != _DONE:
            raise RuntimeError("this result is not there yet: `then` and `wait` tell when it is")
        try:
            if self._error is not None:
                raise self._error
            return self._value
        finally:
            del self  # the exception's traceback must not lead back to the exception

    def wait(self, timeout_s: float | None = None) -> bool:
        """Blocks until it is done; False when that takes longer."""
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
            except BaseException:  # which concerns neither the other callbacks nor our caller
                threading.excepthook(
                    threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread()))
                )
        return True
