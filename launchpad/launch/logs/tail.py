"""A reader that follows the logs of one worker while they grow.

    learner-0.log.1 ─▶ learner-0.log.2 ─▶ learner-0.log ─▶ learner-0.attempt_2.log
     part after part, however many are full                 attempt after attempt

It keeps no file open, since there may be a thousand logs. A changed inode shows that a log was rotated. The
part that was read so far is then called `learner-0.log.N`, and is read to its end first. A subprocess of the
worker may write to that part for a little longer, so the last full part is read again.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from dataclasses import replace
from pathlib import Path

from launchpad.courier.light_dataclass import dataclass
from launchpad.launch.logs import log_files

_CHUNK = 1 << 18
_LONGEST_LINE = 1 << 20
_BEGINNING = 80
_NEVER_CHECKED = -1
_MISSING = 0
_ANOTHER = 1
"""Inodes that no log has."""

_GAP = b"--- launchpad: a part of this log was deleted before it could be shown ---"


@dataclass
class _LogPosition:
    """A file, and how far it has been read."""

    path: str
    offset: int = 0
    beginning: bytes = b""
    """The first bytes of the file, to recognise it: a new file may get the inode of a deleted one."""
    is_another: bool = False

    def read(self, most: int = _CHUNK) -> bytes:
        """Return the next bytes; none at the end, and none if this is no longer the same file."""
        try:
            with open(self.path, "rb", buffering=0) as file:
                self.is_another = file.read(len(self.beginning)) != self.beginning
                file.seek(self.offset)
                data = b"" if self.is_another else file.read(most)
        except OSError:
            return b""
        is_beginning = self.offset == 0
        self.offset = self.offset + len(data)
        if not is_beginning:
            return data
        self.beginning = data[:_BEGINNING]
        return log_files.without_header(data)


class Tail:
    """A reader of the lines of one worker.

    Example:
        tail = Tail(run.log("learner-0"))
        for line in tail.lines(): …           # again and again
        tail.follow(run.log("learner-0", 2))  # it was restarted
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._known = {log}
        self._coming: deque[Path] = deque()
        self._partial = b""
        self._has_gap = False
        self._begin(log)

    def follow(self, log: Path) -> None:
        """Go on with another attempt when this one has been read. Each attempt is read once."""
        if log not in self._known:
            self._known.add(log)
            self._coming.append(log)

    def has_more(self) -> bool:
        return self.backlog() > 0

    def backlog(self) -> int:
        """Return how many bytes of the current attempt are left to read."""
        n_left = max(0, self._notice() - self._live.offset)
        for part in filter(None, (*self._closed, self._late)):
            n_left += max(0, _inode_and_size(part.path)[1] - part.offset)
        if n_left or not self._coming:
            return n_left
        self._partial += b"\n" if self._partial else b""
        self._begin(self._coming.popleft())
        return self.backlog()

    def lines(self) -> list[bytes]:
        """Return the next complete lines, but not all of them if there are very many."""
        if not self.has_more():
            return []
        *lines, partial = (self._partial + self._read()).split(b"\n")
        if self._has_gap:
            self._has_gap = False
            lines.insert(0, _GAP)
        if len(partial) > _LONGEST_LINE:
            lines = [*lines, partial]
            partial = b""
        self._partial = partial
        return lines

    def skip(self, down_to: int) -> tuple[int, int]:
        """Skip all but the last `down_to` bytes. Return how many lines and bytes were skipped."""
        n_lines = 0
        n_bytes = 0
        while True:
            n_excess = self.backlog() - down_to
            if n_excess <= 0:
                break
            data = self._read(min(n_excess, _CHUNK))
            if not data:
                break
            head, newline, self._partial = (self._partial + data).rpartition(b"\n")
            n_lines += head.count(b"\n") + len(newline)
            n_bytes += len(head) + len(newline)
        return n_lines, n_bytes

    def remainder(self) -> bytes:
        """Return the last line, if no newline has ended it."""
        partial = self._partial
        self._partial = b""
        return partial.removesuffix(b"\n")

    def _begin(self, log: Path) -> None:
        self._log = log
        self._inode = _NEVER_CHECKED
        self._number = 1
        self._live = _LogPosition(str(log))
        self._closed: deque[_LogPosition] = deque()
        self._late: _LogPosition | None = None

    def _notice(self) -> int:
        """Note whether the log was rotated since the last call, and return its present size."""
        while True:
            inode, size = _inode_and_size(self._live.path)
            has_shrunk = inode != _MISSING and size < self._live.offset
            if inode == self._inode and not has_shrunk:
                return size
            full = [n for n in log_files.numbers(self._log) if n >= self._number]
            if _inode_and_size(self._live.path)[0] != inode:  # the log has just been rotated
                continue
            # The part that was read so far is the first of the full ones, if it still exists.
            parts = {n: _LogPosition(f"{self._live.path}.{n}") for n in full}
            if self._inode > 0 and self._number in parts:
                parts[self._number] = replace(self._live, path=parts[self._number].path)
            elif self._inode > 0:
                with contextlib.suppress(OSError), self._log.open("rb") as file:
                    self._has_gap |= file.read(len(log_files.HEADER)) == log_files.HEADER
            if full or self._inode > 0:
                self._live = _LogPosition(self._live.path)
            self._closed += parts.values()
            self._number = max(full, default=self._number - 1) + 1
            self._inode = inode

    def _read(self, most: int = _CHUNK) -> bytes:
        while self._closed:
            data = self._closed[0].read(most)
            if data:
                return data
            self._late = self._closed.popleft()
        # Read the live part first. All that was written before these lines is then in `late` already, and is
        # returned before them.
        new = self._live.read(most)
        if self._live.is_another:
            self._inode = _ANOTHER
            self._notice()
            return self._read(most)
        return (self._late.read() if self._late is not None else b"") + new


def _inode_and_size(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return _MISSING, 0
    return status.st_ino, status.st_size
