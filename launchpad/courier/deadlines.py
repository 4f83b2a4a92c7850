"""Deadlines: they are made of the timeouts that callers give."""

from __future__ import annotations

import time


def check_timeout(timeout_s: float | None) -> None:
    """Refuse what is no time: a wait until a NaN would never be over, nor ever begin to sleep.

    Raises:
        ValueError: it is a NaN.
        TypeError: it is no number.
    """
    if timeout_s is not None and not (timeout_s >= 0 or timeout_s < 0):
        raise ValueError(
            f"a timeout is a number of seconds, or None for no limit, not {timeout_s!r}"
        )


def deadline_after(timeout_s: float | None) -> float | None:
    """When a wait that begins now is over, by `time.monotonic()`; None for one without a limit.

    Raises what `check_timeout` does.
    """
    check_timeout(timeout_s)
    return None if timeout_s is None else time.monotonic() + timeout_s
