"""A fence: whether an attempt may still change what its worker has saved.

On threads an attempt that was killed may go on beside the next one, in a method that it serves for instance,
and both save into one folder. So an attempt passes its fence for each change of a file, and the fence is
closed before the next attempt begins.

    attempt 1   writes ────────── passes: renames │                    … writes ──── Stopped
    attempt 2                                     │ begins ── loads ── saves
                                          the fence is closed
"""

from __future__ import annotations

from launchpad.courier import fork
from launchpad.courier.interruptions import Lock
from launchpad.errors import Stopped


class Fence:
    """Lets through the changes of one attempt until it is closed.

    Example:
        with fence.lock:
          fence.check()
          os.rename(aside, name)

    Attributes:
        lock: Held during each change. It is taken by `with` itself: a thread may be interrupted anywhere in a
            method that takes it.
    """

    def __init__(self) -> None:
        self.lock = fork.free_in_child(Lock())
        self._is_closed = False

    def check(self) -> None:
        """Stopped: the attempt has ended, and another may have begun."""
        if self._is_closed:
            raise Stopped

    def close(self) -> None:
        """Lets nothing more through; returns when what has passed is done."""
        with self.lock:
            self._is_closed = True
