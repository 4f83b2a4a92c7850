"""The future of a call, for every carrier."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any

from launchpad.courier.clients.peer import NotRun


class CallFuture(Future[Any]):
    """The future of one call. `cancel` works until the answer is here.

    It then tells the server, which will not begin the call if it has not begun; a method that
    runs is not interrupted.
    """

    _withdraw: Callable[[], None] | None = None

    def cancel(self) -> bool:
        if not super().cancel():
            return False
        with self._condition:
            withdraw, self._withdraw = self._withdraw, None
        if withdraw is not None:
            self.set_running_or_notify_cancel()
            withdraw()
        return True

    def set_on_cancel(self, withdraw: Callable[[], None]) -> None:
        self._withdraw = withdraw

    def settle(self, open_reply: Callable[[], Any]) -> None:
        """Sets what `open_reply()` returns or raises; nothing happens to a cancelled future."""
        with contextlib.suppress(InvalidStateError):
            try:
                value = open_reply()
            except NotRun:
                raise
            except Exception as error:
                self.set_exception(error)
            else:
                self.set_result(value)

    def fail(self, error: Exception) -> None:
        with contextlib.suppress(InvalidStateError):
            self.set_exception(error)
