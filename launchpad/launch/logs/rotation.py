"""How a log that has become too large is rotated, and the oldest of its parts deleted.

    learner-0.log ──rename──▶ learner-0.log.3      open descriptors still write to it
    a new learner-0.log                            the writer's descriptors are moved there
    learner-0.log.1 is deleted                     if there are too many now

What is written between two of these steps is in one part or the other. The writer does this itself; see
`log_writer`.
"""

from __future__ import annotations

import contextlib
import errno
import os
from dataclasses import dataclass
from pathlib import Path

from launchpad.errors import LaunchError
from launchpad.launch.logs import log_files

_MIB = 1 << 20
_MAX_MB = "LAUNCHPAD_LOG_MAX_MB"
_FILES = "LAUNCHPAD_LOG_FILES"

_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a disk that takes no more: no space, a quota, the largest file that is allowed; and one that has
failed altogether."""


@dataclass(frozen=True)
class Rotation:
    """When a log is rotated, and how many parts of it are kept.

    Attributes:
        max_bytes: A log that has grown beyond this is rotated; 0: never.
        files: How many parts of an attempt are kept, the newest included.
    """

    max_bytes: int = 100 * _MIB
    files: int = 10

    @classmethod
    def from_environment(cls) -> Rotation:
        """The rotation that LAUNCHPAD_LOG_MAX_MB and LAUNCHPAD_LOG_FILES set."""
        max_mb = number_of(_MAX_MB, cls.max_bytes / _MIB)
        kept = number_of(_FILES, cls.files)
        if kept < 1 or kept != int(kept):
            raise LaunchError(
                f"{_FILES}={os.environ[_FILES]}: must be a whole number, 1 or more, since the newest"
                " part of a log is always kept"
            )
        return cls(int(max_mb * _MIB), int(kept))

    def rotate(self, log: Path) -> int:
        """Rotates a log; the descriptor of the new part. OSError: nothing has changed."""
        numbers = log_files.numbers(log)
        numbers.append(max(numbers, default=0) + 1)
        older = log.with_name(f"{log.name}.{numbers[-1]}")
        os.rename(log, older)
        try:
            new = os.open(log, _APPEND, 0o600)
        except OSError:
            os.rename(older, log)
            raise
        too_many = numbers[: len(numbers) + 1 - self.files]
        for number in too_many:
            with contextlib.suppress(OSError):
                os.unlink(log.with_name(f"{log.name}.{number}"))
        with contextlib.suppress(OSError):  # a full disk has no room for it
            is_first_gone = bool(too_many) or min(numbers) > 1
            note = "; still older parts have been deleted" if is_first_gone else ""
            os.write(new, log_files.HEADER + f"{older.name}{note} ---\n".encode())
        return new


def first_part(log: Path) -> int:
    """A descriptor that adds to a log; to nothing where the disk is full, which is no reason not to run."""
    try:
        return os.open(log, _APPEND, 0o600)
    except OSError as error:
        if error.errno not in FULL:
            raise
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def number_of(variable: str, default: float) -> float:
    """The number, not below 0, that an environment variable holds; LaunchError if it is none."""
    text = os.environ.get(variable, "").strip()
    try:
        number = float(text) if text else float(default)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise LaunchError(f"{variable}={text}: must be a number, 0 or more")
    return number
