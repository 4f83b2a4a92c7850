"""The folders in which all runs of this user have their directories, and which of these runs have ended.

    runtime bases    $XDG_RUNTIME_DIR/launchpad, $TMPDIR/launchpad-<uid>, /tmp/launchpad-<uid>;
                     or only $LAUNCHPAD_RUNTIME_DIR
    log base         $TMPDIR/launchpad-<uid>-logs, or $LAUNCHPAD_LOGGING_DIR

A run has not ended for as long as a process holds the lock in its runtime directory: the kernel releases it
when that process ends, however it does.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from launchpad.errors import LaunchError

MAX_SOCKET_PATH = 103 if sys.platform == "darwin" else 107
LOCK = "lock"


def runtime_bases() -> list[Path]:
    """Where runtime directories can be, the preferred one first."""
    chosen = os.environ.get("LAUNCHPAD_RUNTIME_DIR")
    if chosen:
        return [Path(chosen).absolute()]
    uid = os.getuid()
    candidates = [Path(tempfile.gettempdir(), f"launchpad-{uid}"), Path(f"/tmp/launchpad-{uid}")]
    if os.environ.get("XDG_RUNTIME_DIR"):
        candidates.insert(0, Path(os.environ["XDG_RUNTIME_DIR"], "launchpad"))
    return list(dict.fromkeys(candidates))


def runtime_base(id_length: int, names: Iterable[str]) -> Path:
    """The first in which sockets of these names have short enough paths, made if need be.

    Raises:
        LaunchError: there is none.
    """
    longest = max((len(os.fsencode(name)) for name in names), default=0)
    # The server binds under a temporary name first, 10 bytes longer.
    free_bytes = MAX_SOCKET_PATH - (id_length + 1 + longest + 10)
    candidates = runtime_bases()
    for candidate in candidates:
        if len(os.fsencode(candidate)) <= free_bytes and is_private(candidate, make=True):
            return candidate
    raise LaunchError(
        f"no directory for sockets: tried {[str(c) for c in candidates]}. It must be yours alone (mode 0700)"
        f" and short enough for socket paths of {MAX_SOCKET_PATH} bytes; set LAUNCHPAD_RUNTIME_DIR or TMPDIR"
        " to one that is."
    )


def log_base() -> Path:
    """Where log directories are."""
    chosen = os.environ.get("LAUNCHPAD_LOGGING_DIR")
    if chosen:
        return Path(chosen).absolute()  # workers may change their directory
    return Path(tempfile.gettempdir()) / f"launchpad-{os.getuid()}-logs"


def is_private(directory: Path, *, make: bool = False) -> bool:
    """Whether it is a directory of ours, and closed to others; with `make` it is made, if need be."""
    if make:
        with contextlib.suppress(OSError):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        status = directory.lstat()
    except OSError:
        return False
    return (
        stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
    )


def is_held(runtime: Path) -> bool:
    """Whether the run with this runtime directory has not ended."""
    try:
        fd = os.open(runtime / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def wait_until_free(runtime: Path) -> None:
    """Returns when the run with this runtime directory has ended."""
    try:
        fd = os.open(runtime / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
    finally:
        os.close(fd)


def sweep(base: Path) -> None:
    """Removes the directories of runs that have ended."""
    for directory in base.iterdir() if base.is_dir() else ():
        try:
            fd = os.open(directory / LOCK, os.O_RDWR)
        except OSError:
            with contextlib.suppress(OSError):
                directory.rmdir()  # of a run that was killed before it had a lock; not if it is in use
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
        except OSError:
            pass  # the run has not ended
        finally:
            os.close(fd)
