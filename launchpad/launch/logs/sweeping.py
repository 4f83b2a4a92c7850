"""Sweeping: the logs of runs that ended long ago are deleted at a launch.

Only what is surely ours: in a directory named and filled as our runs do it, of this user, which nobody has
written to for so many days, and whose run has ended. Where a worker has left a state, everything stays.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

from launchpad.launch import record
from launchpad.launch.logs.rotation import number_of

_VARIABLE = "LAUNCHPAD_LOG_DAYS"
_DAYS = 30
_DAY_S = 86_400.0
_STAMP = ".swept"
_PAUSE_S = 3600.0
"""A base is looked through once an hour: there may be a launch a second."""

_DIRECTORY = re.compile(r"[A-Za-z0-9-]*-\d{4}-\d{6}-[0-9a-f]{4}")
_FILE = re.compile(r"[\w.-]+\.log(\.\d+)?|run\.json")


def sweep_old_logs(base: Path) -> None:
    """Deletes old logs, as LAUNCHPAD_LOG_DAYS says; 0 keeps them for ever. LaunchError: it is no number."""
    days = number_of(_VARIABLE, _DAYS)
    now = time.time()
    if not days or not _is_ours(base) or not _is_time(base / _STAMP, now):
        return
    for directory in _directories(base):
        with contextlib.suppress(OSError):  # another launch sweeps too
            if _is_old(directory, now - days * _DAY_S):
                _delete(directory)


def _is_time(stamp: Path, now: float) -> bool:
    try:
        if stamp.exists() and now - stamp.stat().st_mtime < _PAUSE_S:
            return False
        stamp.touch()
    except OSError:
        return False
    return True


def _directories(base: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return [entry for entry in base.iterdir() if _DIRECTORY.fullmatch(entry.name)]
    return []


def _is_old(directory: Path, before: float) -> bool:
    if directory.lstat().st_mtime >= before or not _is_ours(directory):
        return False
    return all(
        _FILE.fullmatch(file.name)
        and file.is_file(follow_symlinks=False)
        and file.stat(follow_symlinks=False).st_mtime < before
        for file in _files(directory)
    ) and not _lives(directory)


def _files(directory: Path) -> list[os.DirEntry[str]]:
    with os.scandir(directory) as files:
        return list(files)


def _lives(directory: Path) -> bool:
    found = record.read(directory)
    return found is not None and found.lives


def _delete(directory: Path) -> None:
    for file in _files(directory):
        os.unlink(file.path)
    directory.rmdir()


def _is_ours(directory: Path) -> bool:
    try:
        return directory.lstat().st_uid == os.getuid() and not directory.is_symlink()
    except OSError:
        return False
