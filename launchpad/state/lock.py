"""The lock of a state folder. Without it, two launches that share one would overwrite each other's state.

    <folder>/lock       held (flock) by the launcher and by all processes of the launch on its host, until the
                        last one has ended. It names the launch. Children that the launching script forks
                        don't hold it, because they may run longer
    <URL>/lock.json     exists while the launch runs: an object store has no locks

A launcher that is killed leaves its lock.json behind. A new launch on the same host takes the lock over if
the old run has ended. A new launch on another host can't see whether it has ended, and the user must delete
the file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from launchpad.courier import fork
from launchpad.courier.light_dataclass import dataclass
from launchpad.courier.security import private_directory
from launchpad.errors import LaunchError
from launchpad.state.atomic_folder import filesystem_of
from launchpad.state.places import is_url

NAME = "lock"

_LOOK_S = 0.1
"""Seconds between two checks of which launch holds a folder."""


@dataclass(frozen=True)
class Holder:
    """The launch that holds a folder."""

    run_id: str
    program: str
    pid: int
    host: str
    began: str

    @classmethod
    def here(cls, run_id: str, program: str) -> Holder:
        began = time.strftime("%Y-%m-%d %H:%M:%S")
        return cls(run_id, program, os.getpid(), socket.gethostname(), began)

    def __str__(self) -> str:
        return (
            f"program {self.program!r}, run {self.run_id}, process {self.pid} on {self.host}, launched"
            f" {self.began}"
        )


class StateLock:
    """A held lock of a folder, returned by `hold`.

    Attributes:
        descriptors: The descriptors of the lock. A process that inherits them holds the lock too.
    """

    def __init__(self, descriptors: list[int], undo: Callable[[], object]) -> None:
        self.descriptors = descriptors
        self._undo = undo
        fork.drop_in_child(self)

    def drop_inherited(self) -> None:
        """Close the lock's descriptors in a forked child of the launcher.

        The child may run longer than the launch, and only the launch should hold the folder.
        """
        self._undo = lambda: None
        for fd in self.descriptors:
            os.close(fd)
        self.descriptors = []

    def release(self) -> None:
        """Release the lock. In a local folder, processes of the launch that still run keep holding it."""
        undo = self._undo
        self._undo = lambda: None
        # This comes before the descriptors are closed. Otherwise a child forked in between would close
        # other files that got the same numbers.
        self.descriptors = []
        # The object store may be unreachable by now.
        with contextlib.suppress(Exception):
            undo()


def hold(place: str, holder: Holder, is_running: Callable[[str], bool]) -> StateLock:
    """Lock a folder for a launch. The folder is created if it doesn't exist.

    Args:
        place: The folder's path or URL.
        holder: The launch that will hold it.
        is_running: A function that returns True if the run with this id runs on this host.

    Raises:
        LaunchError: Another launch holds the folder, or the folder can't be used, for example because
            another user could change it.
        StateError: fsspec, or what it needs for this kind of URL, is not installed here.
    """
    if is_url(place):
        return _hold_object(place, holder, is_running)
    try:
        folder = private_directory.open_unchangeable(Path(place), make=True)
    except OSError as error:
        raise LaunchError(
            f"state={place!r} cannot be used: {private_directory.explained(error)}"
        ) from error
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        lock = os.open(NAME, flags, 0o600, dir_fd=folder)
    except OSError as error:
        raise LaunchError(f"state={place!r} cannot be used: {error.strerror}") from error
    finally:
        os.close(folder)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock, 0)
        os.pwrite(lock, json.dumps(asdict(holder)).encode(), 0)
        # Other hosts read the file while it is open here. On NFS they may not see the contents without this.
        os.fsync(lock)
    except OSError as error:
        holder_text = os.pread(lock, 1 << 16, 0)
        os.close(lock)
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise _in_use(place, _holder_in(holder_text)) from None
        raise LaunchError(
            f"state={place!r} cannot be locked, and two launches must not share it: {error.strerror}"
        ) from error
    return StateLock([lock], lambda: os.close(lock))


def is_held_by(place: str, run_id: str, *, within_s: float = 2.0) -> bool:
    """Return True if that run holds the folder at this path, as seen from this host.

    If it doesn't, check again for `within_s` seconds, because NFS may show outdated contents for a while.
    """
    deadline = time.monotonic() + within_s
    while True:
        with contextlib.suppress(OSError):
            holder = _holder_in((Path(place) / NAME).read_bytes())
            if holder is not None and holder.run_id == run_id:
                return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_S)


def _hold_object(place: str, holder: Holder, is_running: Callable[[str], bool]) -> StateLock:
    files, path = filesystem_of(place)
    name = f"{path}/{NAME}.json"
    try:
        files.invalidate_cache()
        if files.exists(name):
            current_holder = _holder_in(files.cat_file(name))
            is_here = current_holder is not None and current_holder.host == holder.host
            if current_holder is None or not is_here or is_running(current_holder.run_id):
                hint = "" if is_here else f"; if it has ended, delete {place}/{NAME}.json"
                raise _in_use(place, current_holder, hint)
        files.makedirs(path, exist_ok=True)
        files.pipe_file(name, json.dumps(asdict(holder)).encode())
    except OSError as error:
        raise LaunchError(f"state={place!r} cannot be used: {error}") from error
    return StateLock([], lambda: files.rm_file(name))


def _in_use(place: str, holder: Holder | None, hint: str = "") -> LaunchError:
    user = str(holder or "a launch that does not say which")
    return LaunchError(
        f"state={place!r} is in use by {user}{hint}. Two launches cannot save into one folder: wait for the"
        " other one, end it with `python -m launchpad stop`, or name another folder."
    )


def _holder_in(content: bytes) -> Holder | None:
    try:
        data: dict[str, Any] = json.loads(content)
        return Holder(**data)
    except (ValueError, TypeError):
        return None
