"""Orders: what a launcher wishes of a pod, in the file that the cluster makes of an annotation."""

from __future__ import annotations

import os
from pathlib import Path

from launchpad.launch.backends.kubernetes.post import letters
from launchpad.launch.backends.kubernetes.post.letters import Wishes


class Orders:
    """The file. It is looked at often, and read when it has changed.

    Args:
      given: The folder in which it is.
    """

    def __init__(self, given: Path) -> None:
        self._file = given / "orders"
        self._seen = (0, 0, 0)
        self._wishes = Wishes()

    def wishes(self) -> Wishes:
        """What it says now."""
        try:
            status = os.stat(self._file)
            seen = (status.st_ino, status.st_mtime_ns, status.st_size)
            if seen != self._seen:
                self._wishes, self._seen = letters.wishes_in(self._file.read_text()), seen
        except (OSError, ValueError, TypeError):
            pass  # it is just being replaced
        return self._wishes
