"""The stop of a worker: its event, the handlers that are called, and the interruption of its code."""

from __future__ import annotations

import contextlib
import threading
import traceback
from collections.abc import Callable

from launchpad.courier import fork
from launchpad.courier.interruptions import Lock
from launchpad.runtime.interrupt import Interruption

_HANDLERS_S = 5.0


class StopSignal:
    """The signal that tells a worker's code to stop. Methods may be called from any thread.

    Attributes:
        event: Set when the worker is asked to stop.
        is_watched: True if the worker's code watches for the stop. Then the code is not interrupted.
        interruption: Interrupts the worker's thread.
    """

    def __init__(self, interruption: Interruption | None = None) -> None:
        self.event = threading.Event()
        self.is_watched = False
        self.interruption = interruption or Interruption()
        self._handlers: list[Callable[[], None]] = []
        self._handlers_called = threading.Event()
        # Held to add a handler, and to set the event. So a handler that is added at the time of the stop is
        # called exactly once.
        self._lock = fork.free_in_child(Lock())

    def child(self, interruption: Interruption) -> StopSignal:
        """Return the signal of one of several nodes in the worker. Each node is interrupted by itself."""
        child = StopSignal(interruption)
        child.event = self.event
        child._handlers = self._handlers
        child._handlers_called = self._handlers_called
        child._lock = self._lock
        return child

    def request(self) -> None:
        """Ask the worker to stop: set the event, then call the handlers.

        If a handler raises, its traceback is printed, and the others are still called. A second call waits up
        to 5 s for the handlers, so that the worker does not end while they run.
        """
        with self._lock:
            is_first = not self.event.is_set()
            self.event.set()
            handlers = list(self._handlers)
        if not is_first:
            self._handlers_called.wait(_HANDLERS_S)
            return
        for handler in handlers:
            _call(handler)
        self._handlers_called.set()

    def give_up(self) -> None:
        """Set the event without calling or awaiting any handlers, because the worker is given up."""
        self.event.set()
        self._handlers_called.set()

    def add_handler(self, handler: Callable[[], None]) -> None:
        """Call `handler` once, when the program stops; at once if it is stopping already."""
        self.is_watched = True
        self.call_at_stop(handler)

    def call_at_stop(self, handler: Callable[[], None]) -> None:
        """Call a function of launchpad at the stop. Unlike a handler, it doesn't prevent interruption."""
        with self._lock:
            self._handlers.append(handler)
            is_late = self.event.is_set()
        if is_late:
            _call(handler)

    def remove_handler(self, handler: Callable[[], None]) -> None:
        """Remove a handler; ValueError if it was never added."""
        self._handlers.remove(handler)


def _call(handler: Callable[[], None]) -> None:
    try:
        handler()
    except BaseException:
        # The process may have no stderr any more.
        with contextlib.suppress(Exception):
            traceback.print_exc()


class ExitHandlers:
    """The functions to call when an attempt has ended cleanly, in reverse order."""

    def __init__(self) -> None:
        self._handlers: list[Callable[[], object]] = []

    def add(self, handler: Callable[[], object]) -> None:
        """Call `handler` when this attempt has ended cleanly."""
        self._handlers.append(handler)

    def clear(self) -> None:
        """Forget the handlers, without calling them."""
        self._handlers.clear()

    def call(self, call: Callable[[Callable[[], object]], object]) -> None:
        """Call the handlers, the last one first, including those that handlers add.

        If a handler raises, the others are still called.

        Args:
            call: Calls one handler.

        Raises:
            BaseException: the first error that a handler raised; later errors are printed.
        """
        error: BaseException | None = None
        while self._handlers:
            handler = self._handlers.pop()
            try:
                call(handler)
            except BaseException as raised:
                if error is None:
                    error = raised
                else:
                    traceback.print_exception(raised)
        if error is not None:
            raise error
