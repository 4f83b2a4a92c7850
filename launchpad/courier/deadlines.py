"""Deadlines, computed from the timeouts that callers give."""

from __future__ import annotations

import time


def check_timeout(timeout_s: float | None) -> None:
    """Refuse a timeout that isn't a number. A wait until NaN would loop forever without sleeping.

    Raises:
        ValueError: the timeout is NaN.
        TypeError: the timeout isn't a number.
    """
    if timeout_s is not None and not (timeout_s >= 0 or timeout_s < 0):
        raise ValueError(
            f"a timeout is a number of seconds, or None for no limit, not {timeout_s!r}"
        )


def deadline_after(timeout_s: float | None) -> float | None:
    """Return when a wait that begins now ends, by `time.monotonic()`. Without a limit, return None.

    Raises what `check_timeout` raises.
    """
    check_timeout(timeout_s)
    return None if timeout_s is None else time.monotonic() + timeout_s
