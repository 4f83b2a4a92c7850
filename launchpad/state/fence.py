"""A fence: whether an attempt may still change what its worker has saved.

On threads an attempt that was killed may go on beside the next one, in a method that it serves for instance,
and both save into one folder. So an attempt passes its fence for each change of a file, and the fence is
closed before the next attempt begins.

    attempt 1   writes ────────── passes: renames │                    … writes ──── Stopped
    attempt 2                                     │ begins ── loads ── saves
                                          the fence is closed
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from launchpad.errors import Stopped


class Fence:
    """Lets through the changes of one attempt until it is closed. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_closed = False

    @contextlib.contextmanager
    def passed(self) -> Iterator[None]:
        """A block that changes files. Stopped: the attempt has ended, and another may have begun."""
        with self._lock:
            if self._is_closed:
                raise Stopped
            yield

    def close(self) -> None:
        """Lets nothing more through; returns when what has passed is done."""
        with self._lock:
            self._is_closed = True
