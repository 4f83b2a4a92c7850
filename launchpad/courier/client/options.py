"""The options of a client's calls."""

from __future__ import annotations

import datetime
import threading
from dataclasses import fields
from typing import Any

from launchpad.courier.call_stack import current_call
from launchpad.courier.light_dataclass import dataclass


@dataclass(frozen=True)
class Options:
    """The options of a client's calls, which `client.with_options(…)` changes.

    Attributes:
        timeout_s: Seconds that a call may take, including the wait for the server; None and math.inf mean
            no limit.
        wait_for_ready: If True, a call made before the server is up waits for the server.
        idempotent: If True, a call may run twice, so courier may repeat it when its outcome is unknown.
        compress: If True, arguments and results are compressed on the way, which helps on slow networks.
    """

    timeout_s: float | None = None
    wait_for_ready: bool = True
    idempotent: bool = False
    compress: bool = False

    def __post_init__(self) -> None:
        timeout_s: Any = self.timeout_s
        if isinstance(timeout_s, datetime.timedelta):
            timeout_s = timeout_s.total_seconds()
        elif not isinstance(timeout_s, int | float | None):
            raise TypeError(f"a timeout is in seconds, or a timedelta, not {timeout_s!r}")
        if timeout_s is not None and not timeout_s > 0:
            raise ValueError(
                f"a timeout is in seconds and positive, not {timeout_s!r}; None is no limit"
            )
        if timeout_s is not None and timeout_s >= threading.TIMEOUT_MAX:
            timeout_s = None  # Python can't wait this long, and certainly not to math.inf
        object.__setattr__(self, "timeout_s", timeout_s)

    def find_deadline(self, began: float) -> float | None:
        """Return the deadline of a call that began at `began`.

        It comes from the call's timeout, or from the call within which it is made, if that ends earlier.
        """
        deadline = None if self.timeout_s is None else began + self.timeout_s
        call_context = current_call.get()
        return deadline if call_context is None else call_context.limit(deadline)


OPTION_NAMES = tuple(field.name for field in fields(Options))
