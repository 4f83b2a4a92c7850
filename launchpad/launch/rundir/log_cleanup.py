"""The logs of runs that ended long ago are deleted at a launch.

Only what is surely ours: in a directory named and filled as our runs do it, of this user, in which nothing
was changed for so many days, and whose run has ended. Where a worker has saved a state, everything stays.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

from launchpad.launch.logs.rotation import number_of
from launchpad.launch.rundir import record

_VARIABLE = "LAUNCHPAD_LOG_DAYS"
_DAYS = 30
_DAY_S = 86_400.0
_STAMP = ".swept"
_PAUSE_S = 3600.0
"""The log base is searched once an hour: there may be a launch each second."""

_DIRECTORY = re.compile(r"[A-Za-z0-9-]*-\d{4}-\d{6}-[0-9a-f]{4}")
_FILE = re.compile(r"[\w.-]+\.log(\.\d+)?|run\.json")


def sweep_old_logs(base: Path) -> None:
    """Deletes old logs, as set by LAUNCHPAD_LOG_DAYS; 0 keeps them for ever. LaunchError: it is no number."""
    days = number_of(_VARIABLE, _DAYS)
    now, stamp = time.time(), base / _STAMP
    if not days or not _is_ours(base):
        return
    try:
        if stamp.exists() and now - stamp.stat().st_mtime < _PAUSE_S:
            return
        stamp.touch()
        directories = [entry for entry in base.iterdir() if _DIRECTORY.fullmatch(entry.name)]
    except OSError:
        return
    before = now - days * _DAY_S
    for directory in directories:
        with contextlib.suppress(OSError):  # another launch sweeps too
            if directory.lstat().st_mtime >= before or not _is_ours(directory):
                continue
            with os.scandir(directory) as entries:
                files = list(entries)
            are_old_logs = all(
                _FILE.fullmatch(file.name)
                and file.is_file(follow_symlinks=False)
                and file.stat(follow_symlinks=False).st_mtime < before
                for file in files
            )
            found = record.read(directory) if are_old_logs else None
            if are_old_logs and not (found is not None and found.is_running):
                for file in files:
                    os.unlink(file.path)
                directory.rmdir()


def _is_ours(directory: Path) -> bool:
    try:
        return directory.lstat().st_uid == os.getuid() and not directory.is_symlink()
    except OSError:
        return False
