"""Tokens that clients of the same user find by themselves: in files that no other user can read.

    /tmp/launchpad-<uid>-tokens/127.0.0.1-43211     of a server at tcp:127.0.0.1:43211 that was given none
    /run/user/1000/launchpad/3fb1/courier.token     of all servers whose sockets are in that directory

Any user of a host can connect to its loopback addresses, and what may call a server may run code there. So
a server on a network asks for a token. Where the user has not named one it makes one, and the file has it for
those who may know it. The directory is the same whatever TMPDIR is, or $LAUNCHPAD_TOKENS_DIR.

Rules:
1. A file is there before the first client is answered. A client that was too early looks again.
2. Its server has locked it (flock) for as long as it serves. What a killed one left the next server removes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

from launchpad.courier import fork
from launchpad.courier.security import private_directory
from launchpad.courier.security.keyring import MAX_TOKEN_BYTES

BESIDE_SOCKETS = "courier.token"
_TEMPORARY, _STARTING_S = ".new-", 60.0
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def directory() -> Path:
    """Where the files of servers on a network are."""
    chosen = os.environ.get("LAUNCHPAD_TOKENS_DIR")
    return Path(chosen or f"/tmp/launchpad-{os.geteuid()}-tokens").absolute()


class PublishedToken:
    """The token of a server at an address of this host, as a file, until `remove`.

    Example:
        published = PublishedToken("127.0.0.1", 43211, os.urandom(32))
        find("127.0.0.1", 43211)            # in any process of this user

    Raises:
        PermissionError: another user could read or replace it; as `private_directory.open_private`.
        OSError: it cannot be written.
    """

    def __init__(self, ip: str, port: int, token: bytes) -> None:
        self._name = _name_of(ip, port)
        self._directory = private_directory.open_private(directory(), make=True)
        self._fd = -1
        temporary = f"{_TEMPORARY}{os.urandom(6).hex()}"
        try:
            _sweep(self._directory)
            self._fd = os.open(temporary, _CREATE, 0o600, dir_fd=self._directory)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(self._fd, token)
            os.rename(temporary, self._name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=self._directory)
            self.drop_inherited()
            raise
        fork.drop_in_child(self)

    def remove(self) -> None:
        """Removes the file, unless it is another server's by now. May be called twice."""
        if self._fd < 0:
            return
        with contextlib.suppress(OSError):
            there = os.stat(self._name, dir_fd=self._directory, follow_symlinks=False)
            if os.path.samestat(there, os.fstat(self._fd)):
                os.unlink(self._name, dir_fd=self._directory)
        self.drop_inherited()

    def drop_inherited(self) -> None:
        """Closes it; the file stays."""
        for fd in (self._fd, self._directory):
            if fd >= 0:
                os.close(fd)
        self._fd = self._directory = -1


def find(ip: str, port: int) -> bytes:
    """The token for that address of this host; `b""` if no server of this user has published one."""
    with contextlib.suppress(OSError):
        folder = private_directory.open_private(directory())
        try:
            return _read(os.open(_name_of(ip, port), _READ, dir_fd=folder))
        finally:
            os.close(folder)
    return b""


def find_beside(socket: str) -> bytes:
    """The token for a socket in a file system, `b""` if there is none beside it that is ours."""
    try:
        return _read(os.open(os.path.join(os.path.dirname(socket), BESIDE_SOCKETS), _READ))
    except OSError:
        return b""


def write_beside(folder: Path, token: bytes) -> None:
    """Leaves a token to the clients of all sockets in a private directory, for as long as that exists."""
    with (
        contextlib.suppress(FileExistsError),
        os.fdopen(os.open(folder / BESIDE_SOCKETS, _CREATE, 0o600), "wb") as file,
    ):
        file.write(token)


def _name_of(ip: str, port: int) -> str:
    return f"{ip.removeprefix('::ffff:').replace('/', '_')}-{port}"


def _read(fd: int) -> bytes:
    """What is in a file, if it is ours and closed to others; it is closed."""
    try:
        status = os.fstat(fd)
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            return b""
        return os.read(fd, MAX_TOKEN_BYTES)
    finally:
        os.close(fd)


def _sweep(folder: int) -> None:
    """Removes the files of servers that have ended without doing so."""
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):
            if name.startswith(_TEMPORARY):
                written_at = os.stat(name, dir_fd=folder).st_mtime
                if time.time() - written_at < _STARTING_S:  # it is about to be locked
                    continue
            fd = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.stat(name, dir_fd=folder), os.fstat(fd)):
                    os.unlink(name, dir_fd=folder)
            finally:
                os.close(fd)
