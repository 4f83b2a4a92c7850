"""The call that is being served here: what the calls made on its behalf inherit."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)  # not frozen: that would cost more than all the rest of it
class CallContext:
    """What a method does not see of the call that it serves.

    Attributes:
        deadline: when the caller gives up, by `time.monotonic()`; None for never.
        trace: the caller's span; empty if it does not trace.
    """

    deadline: float | None
    trace: bytes = b""

    def limit(self, deadline: float | None) -> float | None:
        """The earlier of the two deadlines: nobody waits for what comes after ours."""
        if self.deadline is None or deadline is None:
            return self.deadline if deadline is None else deadline
        return min(self.deadline, deadline)


# Coroutines and the threads that they use see it too, as long as they copy their context.
current_call: ContextVar[CallContext | None] = ContextVar("courier_serving", default=None)
