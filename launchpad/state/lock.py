"""The lock of a state folder: two launches that saved into one would take each other's place.

    <folder>/lock       held (flock) by the launcher and by all processes of the launch on its host, until the
                        last has ended; in it stands which launch that is. Not by children that the launching
                        script forks, which may run longer
    <URL>/lock.json     there while the launch runs: an object store has no locks

An object that a killed launcher has left is taken over where it can be seen that its run has ended, on this
host; elsewhere the user has to delete it.
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
"""The time between two looks at who holds a folder."""


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
    """A folder that is held. Made by `hold`.

    Attributes:
        descriptors: What processes inherit that hold it, too.
    """

    def __init__(self, descriptors: list[int], undo: Callable[[], object]) -> None:
        self.descriptors = descriptors
        self._undo = undo
        fork.drop_in_child(self)

    def drop_inherited(self) -> None:
        """For a forked child of the launcher, which may run longer: only the launch holds the folder."""
        self._undo = lambda: None
        for fd in self.descriptors:
            os.close(fd)
        self.descriptors = []

    def release(self) -> None:
        """Ends it, unless a process of the launch has not ended: then it ends with that."""
        undo = self._undo
        self._undo = lambda: None
        self.descriptors = []  # first: a child that is forked now must not close others of these numbers
        with contextlib.suppress(Exception):  # an object store that cannot be reached any more
            undo()


def hold(place: str, holder: Holder, is_running: Callable[[str], bool]) -> StateLock:
    """Holds a folder, which is made if it is not there.

    Args:
        place: Its path or URL.
        is_running: Whether the run of this name runs on this host.

    Raises:
        LaunchError: another launch holds it; or it cannot be used, as another user could change it.
        StateError: there is nothing here that opens such URLs.
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
        os.fsync(lock)  # other hosts read it while it is open here, which NFS does not promise else
    except OSError as error:
        other = os.pread(lock, 1 << 16, 0)
        os.close(lock)
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise _in_use(place, _holder_in(other)) from None
        raise LaunchError(
            f"state={place!r} cannot be locked, and two launches must not share it: {error.strerror}"
        ) from error
    return StateLock([lock], lambda: os.close(lock))


def is_held_by(place: str, run_id: str, *, within_s: float = 2.0) -> bool:
    """Whether that run holds the folder at this path, as seen from this host.

    Looks again for so long if it does not: NFS may show for a while what was there before.
    """
    deadline = time.monotonic() + within_s
    while True:
        with contextlib.suppress(OSError):
            held = _holder_in((Path(place) / NAME).read_bytes())
            if held is not None and held.run_id == run_id:
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
            other = _holder_in(files.cat_file(name))
            is_here = other is not None and other.host == holder.host
            if other is None or not is_here or is_running(other.run_id):
                hint = "" if is_here else f"; if it has ended, delete {place}/{NAME}.json"
                raise _in_use(place, other, hint)
        files.makedirs(path, exist_ok=True)
        files.pipe_file(name, json.dumps(asdict(holder)).encode())
    except OSError as error:
        raise LaunchError(f"state={place!r} cannot be used: {error}") from error
    return StateLock([], lambda: files.rm_file(name))


def _in_use(place: str, other: Holder | None, hint: str = "") -> LaunchError:
    who = str(other or "a launch that does not say which")
    return LaunchError(
        f"state={place!r} is in use by {who}{hint}. Two launches cannot save into one folder: wait for the"
        " other one, end it with `python -m launchpad stop`, or name another folder."
    )


def _holder_in(content: bytes) -> Holder | None:
    try:
        data: dict[str, Any] = json.loads(content)
        return Holder(**data)
    except (ValueError, TypeError):
        return None
