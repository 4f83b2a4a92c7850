"""The parts of a log. When a part is too large, the next one is begun.

    learner-0.log ──rename──▶ learner-0.log.3      open descriptors still write to it
    a new learner-0.log                            the writer's descriptors are moved there
    learner-0.log.1 is deleted                     if there are too many parts now; its lines are counted

The writer of a log rotates it (log_writer.py). The first line of each further part is a header. It says where
the part before is, and how much has been deleted in all: each rotation adds to the numbers in the header
before. Text that is written between two of the steps above is in one part or the other.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from pathlib import Path

from launchpad.courier.light_dataclass import dataclass
from launchpad.errors import LaunchError
from launchpad.launch.logs.log_files import HEADER, numbers

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a disk that takes no more: no space, a quota, the largest file size, or a failed disk."""

_DELETED = re.compile(rb"deleted: ([\d,]+) lines, ([\d,]+) bytes")
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
_MIB = 1 << 20
_FILES = "LAUNCHPAD_LOG_FILES"


@dataclass(frozen=True)
class Rotation:
    """The limits of a log: its size before it is rotated, and how many parts are kept.

    Attributes:
        max_bytes: The size beyond which a log is rotated; 0 means never.
        files: How many parts of an attempt are kept, including the newest.
    """

    max_bytes: int = 100 * _MIB
    files: int = 10

    @classmethod
    def from_environment(cls) -> Rotation:
        """Return the rotation that LAUNCHPAD_LOG_MAX_MB and LAUNCHPAD_LOG_FILES set."""
        max_mb = number_of("LAUNCHPAD_LOG_MAX_MB", cls.max_bytes / _MIB)
        files = number_of(_FILES, cls.files)
        if files < 1 or files != int(files):
            raise LaunchError(
                f"{_FILES}={os.environ[_FILES]}: must be a whole number, 1 or more, since the newest"
                " part of a log is always kept"
            )
        return cls(int(max_mb * _MIB), int(files))

    def rotate(self, log: Path) -> int:
        """Rotate a log, and return the descriptor of the new part.

        Raises:
            OSError: the log cannot be rotated, and nothing has changed.
        """
        full = numbers(log)
        full.append(max(full, default=0) + 1)
        older = log.with_name(f"{log.name}.{full[-1]}")
        os.rename(log, older)
        try:
            new = os.open(log, _APPEND, 0o600)
        except OSError:
            os.rename(older, log)
            raise
        n_lines, n_bytes = _deleted_before(older)
        too_many = full[: max(0, len(full) + 1 - self.files)]
        for part in (log.with_name(f"{log.name}.{number}") for number in too_many):
            with contextlib.suppress(OSError):
                more_lines, more_bytes = _lines_and_bytes(part)
                part.unlink()
                n_lines = n_lines + more_lines
                n_bytes = n_bytes + more_bytes
        with contextlib.suppress(OSError):  # a full disk has no room for it
            amount = f": {n_lines:,} lines, {n_bytes:,} bytes" if n_bytes else ""
            is_first_gone = bool(too_many) or min(full) > 1
            note = f"; still older parts have been deleted{amount}" if is_first_gone else ""
            os.write(new, HEADER + f"{older.name}{note} ---\n".encode())
        return new


def _deleted_before(part: Path) -> tuple[int, int]:
    """Return how many lines and bytes have been deleted, according to a part's header."""
    with part.open("rb") as file:
        header = file.readline(1000)
    match = _DELETED.search(header) if header.startswith(HEADER) else None
    n_lines, n_bytes = match.groups() if match is not None else (b"0", b"0")
    return int(n_lines.replace(b",", b"")), int(n_bytes.replace(b",", b""))


def _lines_and_bytes(part: Path) -> tuple[int, int]:
    """Return how many lines and bytes of output a part holds, without its header."""
    n_lines = 0
    n_bytes = 0
    with part.open("rb") as file:
        if not file.readline(1000).startswith(HEADER):
            file.seek(0)
        while chunk := file.read(_MIB):
            n_lines = n_lines + chunk.count(b"\n")
            n_bytes = n_bytes + len(chunk)
    return n_lines, n_bytes


def first_part(log: Path) -> int:
    """Return a descriptor that appends to a log. If the disk is full, it drops all output.

    The worker runs even then.
    """
    try:
        return os.open(log, _APPEND, 0o600)
    except OSError as error:
        if error.errno not in FULL:
            raise
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def number_of(variable: str, default: float) -> float:
    """Return the number that an environment variable holds.

    Raises:
        LaunchError: the variable is not a number, or below 0.
    """
    text = os.environ.get(variable, "").strip()
    try:
        number = float(text) if text else float(default)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise LaunchError(f"{variable}={text}: must be a number, 0 or more")
    return number
