"""Mirror: what a worker prints on another host, in its log file here."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from launchpad.launch.logs.rotation import Rotation, first_part
from launchpad.launch.logs.unfailing import UnfailingBuffer, why_lost


class Mirror:
    """The log of one attempt; turned over when it is too large.

    Args:
      path: Where it is.
      tell: Told, in words, when output is lost because the disk takes no more.
    """

    def __init__(self, path: Path, rotation: Rotation, tell: Callable[[str], None]) -> None:
        self._path, self._rotation, self._tell = path, rotation, tell
        self._file = UnfailingBuffer(first_part(path))

    def write(self, data: bytes) -> None:
        """Adds what has been printed."""
        if self._rotation.is_due(os.fstat(self._file.fileno()).st_size):
            with contextlib.suppress(OSError):  # the next write tries again
                new = self._rotation.turn(self._path)
                self._file.close()
                self._file = UnfailingBuffer(new)
        self._file.write(data)
        self._file.flush()
        if self._file.trouble is not None:
            self._tell(why_lost(self._file.trouble, str(self._path.parent)))

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
