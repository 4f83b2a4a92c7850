"""A fence that keeps an ended attempt from changing its worker's saved state.

When workers are threads, an attempt that was killed may go on beside the next one, for example in a method
that it serves, and both save into one folder. So an attempt passes its fence for each change of a file. The
fence is closed before the next attempt begins.

    attempt 1   writes ────────── passes: renames │                    … writes ──── Stopped
    attempt 2                                     │ begins ── loads ── saves
                                          the fence is closed
"""

from __future__ import annotations

from launchpad.courier import fork
from launchpad.courier.interruptions import Lock
from launchpad.errors import Stopped


class Fence:
    """A fence for one attempt: it lets the attempt's changes through until it is closed.

    Example:
        with fence.lock:
          fence.check()
          os.rename(aside, name)

    Attributes:
        lock: Held during each change. Callers take it with `with`, not through a method of the fence: a
            thread may be interrupted anywhere in such a method.
    """

    def __init__(self) -> None:
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
