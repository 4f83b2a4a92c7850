"""Fences that keep an ended attempt from changing its worker's saved state.

When workers are threads, an attempt that was killed may go on beside the next one, for example in a method
that it serves, and both save into one folder. So an attempt passes its fence for each change of a file. The
fence is closed before the next attempt begins.

    attempt 1   writes ────────── passes: renames │                    … writes ──── Stopped
    attempt 2                                     │ begins ── loads ── saves
                                          the fence is closed

An attempt on another host can't be told so while its host is cut off or frozen. So the later attempt writes
its number into the folder before it loads or saves, and an earlier one that finds a higher number there saves
nothing more:

    attempt 1   saves ─── (its host is frozen) ──────────────── … finds number 2: Stopped
    attempt 2              writes its number ── loads ── saves
"""

from __future__ import annotations

from typing import NamedTuple

from launchpad.courier import fork
from launchpad.courier.interruptions import Lock
from launchpad.errors import Stopped


class AttemptId(NamedTuple):
    """The attempt that saves: the run that it belongs to, and its number."""

    run_id: str
    number: int

    def is_followed_by(self, other: AttemptId) -> bool:
        """Return True if `other` is a later attempt of the same run."""
        return self.run_id == other.run_id and other.number > self.number


class Fence:
    """A fence for one attempt: it lets the attempt's changes through until it is closed.

    Example:
        with fence.lock:
          fence.check()
          os.rename(aside, name)

    Args:
        attempt: The attempt, if another host may begin the next one.

    Attributes:
        lock: Held during each change. Callers take it with `with`, not through a method of the fence: a
            thread may be interrupted anywhere in such a method.
    """

    def __init__(self, attempt: AttemptId | None = None) -> None:
        self.attempt = attempt
        self.lock = fork.free_in_child(Lock())
        self._is_closed = False

    def check(self) -> None:
        """Raise Stopped if the fence is closed: the attempt has ended, and the next may have begun."""
        if self._is_closed:
            raise Stopped

    def close(self) -> None:
        """Let no more changes through. Return once the change in progress is done."""
        with self.lock:
            self._is_closed = True
