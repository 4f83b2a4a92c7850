"""Tokens in files that only the same user can read, so that the user's clients find them by themselves.

    /tmp/launchpad-<uid>-tokens/127.0.0.1-43211     for a server at tcp:127.0.0.1:43211 without a token
    /run/user/1000/launchpad/3fb1/courier.token     for all servers whose sockets are in that directory

Any user of a host can connect to its loopback addresses, and any caller of a server may run code there. So a
server on a network asks for a token. If the user named no token, the server makes one and writes it to such a
file. The directory doesn't depend on TMPDIR; $LAUNCHPAD_TOKENS_DIR names another one.

Rules:
1. The file exists before the server answers its first client. A client that came too early looks again.
2. The server locks its file (flock) for as long as it serves. The next server removes the files that killed
   servers left behind.
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
_TEMPORARY = ".new-"
_STARTING_S = 60.0
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def directory() -> Path:
    """Return the directory for the token files of servers on a network."""
    chosen = os.environ.get("LAUNCHPAD_TOKENS_DIR")
    return Path(chosen or f"/tmp/launchpad-{os.geteuid()}-tokens").absolute()


class PublishedToken:
    """A file with the token of a server at an address of this host. It exists until `remove`.

    Example:
        published = PublishedToken("127.0.0.1", 43211, os.urandom(32))
        find("127.0.0.1", 43211)            # in any process of this user

    Raises:
        PermissionError: Another user could read or replace the directory (`private_directory.open_private`).
        OSError: The file can't be written.
    """

    def __init__(self, ip: str, port: int, token: bytes) -> None:
        self._name = _name_of(ip, port)
        self._directory = private_directory.open_private(directory(), make=True)
        self._fd = -1
        temporary = f"{_TEMPORARY}{os.urandom(6).hex()}"
        try:
            _sweep(self._directory)
            self._fd = os.open(temporary, _CREATE, 0o600, dir_fd=self._directory)
            # Lock the file before it has its name: another server removes files that it can lock.
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
        """Remove the file, unless it belongs to another server by now. A second call does nothing."""
        if self._fd < 0:
            return
        with contextlib.suppress(OSError):
            status = os.stat(self._name, dir_fd=self._directory, follow_symlinks=False)
            if os.path.samestat(status, os.fstat(self._fd)):
                os.unlink(self._name, dir_fd=self._directory)
        self.drop_inherited()

    def drop_inherited(self) -> None:
        """Close the descriptors. The file stays."""
        for fd in (self._fd, self._directory):
            if fd >= 0:
                os.close(fd)
        self._fd = -1
        self._directory = -1


def find(ip: str, port: int) -> bytes:
    """Return the token for an address of this host, or `b""` if no server of this user published one."""
    with contextlib.suppress(OSError):
        folder = private_directory.open_private(directory())
        try:
            return _read(os.open(_name_of(ip, port), _READ, dir_fd=folder))
        finally:
            os.close(folder)
    return b""


def find_beside(socket: str) -> bytes:
    """Return the token for a Unix socket, or `b""` if there is no token file of this user beside it."""
    try:
        return _read(os.open(os.path.join(os.path.dirname(socket), BESIDE_SOCKETS), _READ))
    except OSError:
        return b""


def write_beside(folder: Path, token: bytes) -> None:
    """Write a token file for the clients of all sockets in a private directory. Keep an existing file.

    The file stays as long as the directory.
    """
    with (
        contextlib.suppress(FileExistsError),
        os.fdopen(os.open(folder / BESIDE_SOCKETS, _CREATE, 0o600), "wb") as token_file,
    ):
        token_file.write(token)


def _name_of(ip: str, port: int) -> str:
    return f"{ip.removeprefix('::ffff:').replace('/', '_')}-{port}"


def _read(fd: int) -> bytes:
    """Read a file and close it. Return `b""` unless it is ours and no other user may read or write it."""
    try:
        status = os.fstat(fd)
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            return b""
        return os.read(fd, MAX_TOKEN_BYTES)
    finally:
        os.close(fd)


def _sweep(folder: int) -> None:
    """Remove the files of servers that ended without removing them."""
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):
            if name.startswith(_TEMPORARY):
                written_at = os.stat(name, dir_fd=folder).st_mtime
                # A server that is just starting creates its file before it locks it.
                if time.time() - written_at < _STARTING_S:
                    continue
            fd = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.stat(name, dir_fd=folder), os.fstat(fd)):
                    os.unlink(name, dir_fd=folder)
            finally:
                os.close(fd)
