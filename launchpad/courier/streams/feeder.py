"""The thread of a client that steps an iterator which was given to a call as an argument."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from launchpad.courier.streams.outgoing import Outgoing
from launchpad.courier.streams.outlet import Outlet
from launchpad.courier.streams.pump import report


class Waits(Protocol):
    """What a feeder needs of its call."""

    def wait_for(self, is_ready: Callable[[], bool]) -> bool:
        """Waits until then, and reads meanwhile; False when the call is over."""

    def feeder_ended(self) -> None: ...


class Feeder:
    """Sends what one argument's iterator gives, as long as the method has room for it.

    A thread of its own, from the first credit on: the iterator may wait for anything, even for what
    the caller does with the call's own result.
    """

    def __init__(self, call: Waits, outgoing: Outgoing, outlet: Outlet, name: str) -> None:
        self._call = call
        self._outgoing = outgoing
        self._outlet = outlet
        self._is_cancelled = False
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._has_started = False
        self.is_feeding = False  # the thread may use the connection

    def allow(self, items: int, n_bytes: int) -> None:
        """The method has room for so many more."""
        self._outgoing.allow(items, n_bytes)
        self.start()

    def cancel(self) -> None:
        """The method wants no more."""
        self._is_cancelled = True
        self._outgoing.interrupt()
        self.start()

    def end(self) -> None:
        """The call is over: closes the iterator, here if it was never stepped."""
        self._is_cancelled = True
        self._outgoing.interrupt()
        if not self._has_started:
            self._has_started = True
            self._close()

    def start(self) -> None:
        """Nothing happens the second time."""
        if not self._has_started:
            self._has_started = self.is_feeding = True
            self._thread.start()

    def _main(self) -> None:
        try:
            self._outgoing.context.run(self._feed)
        except OSError:
            pass  # whoever reads sees the end of the connection, and says so
        finally:
            self._close()
            self.is_feeding = False
            self._call.feeder_ended()

    def _feed(self) -> None:
        while not self._outgoing.has_ended and self._call.wait_for(self._may_go_on):
            if self._is_cancelled:
                return
            chunks = self._outgoing.step()
            self._outlet.put(chunks)
            while not self._outlet.flush():  # a closed outlet has nothing left
                self._outlet.wait_for_room(1.0)

    def _may_go_on(self) -> bool:
        return self._is_cancelled or self._outgoing.has_room

    def _close(self) -> None:
        try:
            self._outgoing.context.run(self._outgoing.close)
        except BaseException:
            report()
