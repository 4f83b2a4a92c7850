"""The folders in which all runs of this user have their directories, and which of these runs have ended.

    runtime bases    $XDG_RUNTIME_DIR/launchpad, $TMPDIR/launchpad-<uid>, /tmp/launchpad-<uid>;
                     or only $LAUNCHPAD_RUNTIME_DIR
    log base         $TMPDIR/launchpad-<uid>-logs, or $LAUNCHPAD_LOGGING_DIR

Each base is a private directory (`courier/security/private_directory.py`): it belongs to this user alone, and
is not in a directory where another user could rename it. Other users may look into a log base that was set
with $LAUNCHPAD_LOGGING_DIR, but the directories of runs in it are private.

A run has not ended as long as a process holds the lock in its runtime directory. The kernel releases the lock
when that process ends, in whatever way.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from launchpad.courier.security import private_directory
from launchpad.errors import LaunchError

MAX_SOCKET_PATH = 103 if sys.platform == "darwin" else 107
LOCK = "lock"


def runtime_bases() -> list[Path]:
    """Return the folders in which runtime directories can be, the preferred one first."""
    variable = os.environ.get("LAUNCHPAD_RUNTIME_DIR")
    if variable:
        return [Path(variable).absolute()]
    uid = os.getuid()
    candidates = [Path(tempfile.gettempdir(), f"launchpad-{uid}"), Path(f"/tmp/launchpad-{uid}")]
    if os.environ.get("XDG_RUNTIME_DIR"):
        candidates.insert(0, Path(os.environ["XDG_RUNTIME_DIR"], "launchpad"))
    return list(dict.fromkeys(candidates))


def runtime_base(id_length: int, names: Iterable[str]) -> Path:
    """Return the first base in which the paths of these sockets are short enough. Make it if it is missing.

    Raises:
        LaunchError: there is no such base.
    """
    longest = max((len(os.fsencode(name)) for name in names), default=0)
    # The server first binds under a temporary name, which is 10 bytes longer.
    free_bytes = MAX_SOCKET_PATH - (id_length + 1 + longest + 10)
    problems = []
    for candidate in runtime_bases():
        if len(os.fsencode(candidate)) > free_bytes:
            problems.append(
                f"{candidate}: it is too long for socket paths of {MAX_SOCKET_PATH} bytes"
            )
            continue
        try:
            private_directory.make_private(candidate)
        except OSError as error:
            problems.append(private_directory.explained(error))
        else:
            return candidate
    raise LaunchError(
        f"no directory for sockets: {'; '.join(problems)}. It must be yours alone (mode 0700) and have a"
        " short path; set LAUNCHPAD_RUNTIME_DIR or TMPDIR to one that is."
    )


def private_runtime_bases() -> list[Path]:
    """Return the runtime bases that exist and are private. No launch uses a base that is not private.

    Raises:
        LaunchError: bases exist, but none of them is private.
    """
    private = []
    problems = []
    for candidate in runtime_bases():
        try:
            os.close(private_directory.open_private(candidate))
            private.append(candidate)
        except PermissionError as error:
            problems.append(private_directory.explained(error))
        except OSError:
            continue  # the base does not exist
    if problems and not private:
        raise LaunchError(
            f"runs are not looked for where others could have put them: {'; '.join(problems)}. Or set"
            " LAUNCHPAD_RUNTIME_DIR to where you launch."
        )
    return private


def log_base() -> Path:
    """Return the folder of the log directories."""
    variable = os.environ.get("LAUNCHPAD_LOGGING_DIR")
    if variable:
        return Path(variable).absolute()  # workers may change their directory
    return Path(tempfile.gettempdir()) / f"launchpad-{os.getuid()}-logs"


def open_log_base(*, make: bool = False) -> int:
    """Return a descriptor of the log base, once no other user can replace what is in it.

    Raises:
        FileNotFoundError: the base does not exist, and `make` is False.
        LaunchError: the base cannot be made, or another user could replace what is in it.
    """
    try:
        base = log_base()
    except FileNotFoundError as error:  # TMPDIR, /tmp and the current directory take no file
        if not make:
            raise
        raise LaunchError(
            f"no directory for logs: {error.strerror}. Make room in one of them, or set LAUNCHPAD_LOGGING_DIR"
            " and LAUNCHPAD_RUNTIME_DIR to directories of your own."
        ) from error
    try:
        if os.environ.get("LAUNCHPAD_LOGGING_DIR"):
            return private_directory.open_unchangeable(base, make=make)
        return private_directory.open_private(base, make=make, close_to_others=True)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not make:
            raise
        raise LaunchError(
            f"no directory for logs: {private_directory.explained(error)}. Or set LAUNCHPAD_LOGGING_DIR to a"
            " directory of your own."
        ) from error


def is_held(runtime: Path) -> bool:
    """Return True if the run with this runtime directory has not ended."""
    with _locked(runtime, fcntl.LOCK_EX | fcntl.LOCK_NB) as is_ours:
        return is_ours is False


def wait_until_free(runtime: Path) -> None:
    """Wait until the run with this runtime directory has ended."""
    with _locked(runtime, fcntl.LOCK_EX):
        return


def sweep(base: Path) -> None:
    """Remove the directories of runs that have ended."""
    for directory in base.iterdir() if base.is_dir() else ():
        with _locked(directory, fcntl.LOCK_EX | fcntl.LOCK_NB) as is_ours:
            if is_ours:
                remove(directory)
            elif is_ours is None:
                with contextlib.suppress(OSError):
                    # This run was killed before it had a lock. `rmdir` fails if the directory is in use,
                    # because then it isn't empty.
                    directory.rmdir()


def remove(runtime: Path) -> None:
    """Remove a runtime directory. What cannot be removed stays.

    Remove the lock last: this process may be killed at any moment, and a sweep recognises the directory of an
    ended run by the lock in it.
    """
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(runtime)):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            elif entry.name != LOCK:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)
    shutil.rmtree(runtime, ignore_errors=True)


@contextlib.contextmanager
def _locked(runtime: Path, how: int) -> Iterator[bool | None]:
    """Take the lock of a run until the block ends. Yield True if that succeeds.

    Yield False if another process holds the lock, and None if there is no lock.
    """
    try:
        fd = os.open(runtime / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        yield None
        return
    with open(fd, "rb"):  # closes it
        try:
            fcntl.flock(fd, how)
            is_ours = True
        except OSError:
            if not how & fcntl.LOCK_NB:
                raise
            is_ours = False
        yield is_ours
