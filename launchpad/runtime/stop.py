"""The stop of a worker: the event, what is called then, and whether its code is interrupted."""

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
    """Says to the code of a worker that it has to stop. Methods may be called from any thread.

    Attributes:
        event: Set when the worker is asked to stop.
        is_watched: True if the worker's code watches for the stop; if it does, it is not interrupted.
        interruption: Interrupts the worker's thread.
    """

    def __init__(self, interruption: Interruption | None = None) -> None:
        self.event = threading.Event()
        self.is_watched = False
        self.interruption = interruption or Interruption()
        self._handlers: list[Callable[[], None]] = []
        self._handlers_called = threading.Event()
        self._lock = fork.free_in_child(Lock())

    def child(self, interruption: Interruption) -> StopSignal:
        """Return the signal of one of several nodes in the worker: it is interrupted by itself."""
        child = StopSignal(interruption)
        child.event = self.event
        child._handlers = self._handlers
        child._handlers_called = self._handlers_called
        child._lock = self._lock
        return child

    def request(self) -> None:
        """Ask the worker to stop: set the event, then call the handlers.

        A handler that raises has its traceback printed, and the others are called all the same. A second
        call waits up to 5 s for the handlers: a worker does not end while they run.
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
        """Set the event without calling a handler: the worker is given up, and waits for none."""
        self.event.set()
        self._handlers_called.set()

    def add_handler(self, handler: Callable[[], None]) -> None:
        """Call `handler` once, when the program stops; at once if it is stopping already."""
        self.is_watched = True
        self.call_at_stop(handler)

    def call_at_stop(self, handler: Callable[[], None]) -> None:
        """Do the same for what wakes waits of ours: the worker is interrupted as if there were none."""
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
        # There may be no stderr any more.
        with contextlib.suppress(Exception):
            traceback.print_exc()


class ExitHandlers:
    """What is called when an attempt has ended in good order, the last one given first."""

    def __init__(self) -> None:
        self._handlers: list[Callable[[], object]] = []

    def add(self, handler: Callable[[], object]) -> None:
        """Call `handler` when this attempt has ended in good order."""
        self._handlers.append(handler)

    def clear(self) -> None:
        """Forget those that have not been called, and will not be."""
        self._handlers.clear()

    def call(self, call: Callable[[Callable[[], object]], object]) -> None:
        """Call the handlers, the last one first; also those that are added during it.

        One that raises keeps no other from being called.

        Args:
            call: Calls one of them.

        Raises:
            BaseException: what the first of those that raise has raised; of the others it is printed.
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
