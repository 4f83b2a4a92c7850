"""The stacks of a worker's process: it writes them into a file when it is told to, and we wait for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

_LONGEST_S = 2.0
_POLL_S = 0.005
_SILENT = 6
"""After so many looks without anything new it has written all: it does so in one go."""


def shown(file: Path, ask: Callable[[], None]) -> str:
    """What is added to the file after `ask`."""
    begin = _size(file)
    ask()
    if not _wait(file, begin):
        return "(no answer: it has just begun, has ended, or is stuck in the kernel)\n"
    with file.open("rb") as written:
        written.seek(begin)
        return written.read().decode(errors="replace")


def _wait(file: Path, begin: int) -> bool:
    """Until it grows and then no longer does; False if it does not begin to."""
    deadline = time.monotonic() + _LONGEST_S
    size, silent = begin, 0
    while silent < _SILENT and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        before, size = size, _size(file)
        silent = silent + 1 if size == before and size > begin else 0
    return size > begin


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
