"""Unix stream sockets: a listener that publishes a server at a path, and the client's end.

The path is published last. The server binds to a temporary name beside it, sets mode 0600, listens, and only
then renames the socket to its path. So no client ever meets a socket that isn't listening yet, and a file
that a dead server left is replaced in one step. A server that listens is never replaced.

A user who may connect may run code here. That is why the directory must belong to us (or root), and others
must not be able to write to it. Both ends check this. In any other directory a user could replace the server,
and clients would show that user their token.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import stat
import sys
import time
from pathlib import Path

from launchpad.courier.security.private_directory import check_unchangeable
from launchpad.courier.transport.stream_socket import Listener

PREFIX = "unix:"
MAX_PATH = 107 if sys.platform == "linux" else 103
_BACKLOG = 4096
_PAUSE_S = 0.01  # before the next attempt while the backlog is full
_FRESH = re.compile(r"courier-[0-9a-f]{12}")
_SOCKET = "s"
# A directory that is younger than this, and has no socket, may belong to a server that is still starting.
_STARTING_S = 60.0

is_stale = None  # a write to a peer that has closed fails at once


def path_of(address: str) -> str:
    """Return the path in `unix:/path`. Raises ValueError if it can't be a socket's path."""
    path = address.removeprefix(PREFIX)
    if not address.startswith(PREFIX) or not os.path.isabs(path):
        raise ValueError(f"{address!r} is not of the form unix:/absolute/path")
    size = len(os.fsencode(path))
    if size > MAX_PATH:
        raise ValueError(
            f"the socket path {path!r} has {size} bytes, and the system takes {MAX_PATH} at most. "
            "Choose a shorter directory, for example one directly under /tmp."
        )
    return path


def fresh_path() -> str:
    """Return a path in a new directory, which doesn't exist yet. It is short enough for any TMPDIR."""
    import tempfile

    name = f"courier-{os.urandom(6).hex()}/{_SOCKET}"
    path = os.path.join(tempfile.gettempdir(), name)
    return path if len(os.fsencode(path)) <= MAX_PATH - 8 else f"/tmp/{name}"


def _sweep(folder: str) -> None:
    """Remove directories that `fresh_path` named and whose servers were killed: nothing listens in them."""
    with os.scandir(folder) as entries:
        directories = [entry.path for entry in entries if _FRESH.fullmatch(entry.name)]
    for directory in directories:
        with contextlib.suppress(OSError):  # the directory is gone by now, or a server is there
            status = os.lstat(directory)
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                continue
            names = os.listdir(directory)
            if _SOCKET not in names and time.time() - status.st_mtime < _STARTING_S:
                continue
            _refuse_if_taken(os.path.join(directory, _SOCKET))
            for name in names:
                os.unlink(os.path.join(directory, name))
            os.rmdir(directory)


class UnixListener(Listener):
    """A listening Unix socket, published at a path. `close` removes the file if it is still ours."""

    def __init__(self, address: str) -> None:
        path = path_of(address)
        self.address = address
        self._directory = os.path.dirname(path)
        self._owns_directory = False
        self.path = path
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._directory, 0o700)
            self._owns_directory = True
            if _FRESH.fullmatch(os.path.basename(self._directory)):
                _sweep(os.path.dirname(self._directory))
        # Another user must not be able to put a socket into the directory, or replace one.
        try:
            check_unchangeable(Path(self._directory))
            status = os.stat(self._directory)
            if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
                mode = stat.S_IMODE(status.st_mode)
                problem = f"others may write to it (mode {mode:o}); chmod it to 0700"
                raise PermissionError(errno.EPERM, problem, self._directory)
            self.sock = self._publish()
        except BaseException:
            self._remove_directory()
            raise
        self._published = os.lstat(path)

    @property
    def is_lost(self) -> bool:
        """True if the socket's file was removed or replaced."""
        try:
            return not os.path.samestat(os.lstat(self.path), self._published)
        except OSError:
            return True

    def republish(self) -> None:
        """Listen on another socket, at the same path.

        Raises:
            OSError: Another server listens there, or the directory is gone. The directory is not created
                again, because it may have been removed for good.
        """
        sock = self._publish()
        self.sock.close()
        published = os.lstat(self.path)
        self.sock = sock
        self._published = published

    def accept(self) -> socket.socket:
        sock, _ = self.sock.accept()
        sock.setblocking(True)
        return sock

    def close(self) -> None:
        self.sock.close()
        if not self.is_lost:
            with contextlib.suppress(OSError):
                os.unlink(self.path)
        self._remove_directory()

    def _remove_directory(self) -> None:
        if self._owns_directory:
            with contextlib.suppress(OSError):  # not empty: others use it, too
                os.rmdir(self._directory)

    def _publish(self) -> socket.socket:
        import fcntl

        temporary = os.path.join(self._directory, f".{os.urandom(3).hex()}")
        path_of(PREFIX + temporary)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.bind(temporary)
            os.chmod(temporary, 0o600)
            sock.listen(_BACKLOG)
            sock.setblocking(False)
            # Only one server at a time publishes here. Otherwise two servers that start together would both
            # find no server at the path, and the second would replace the first.
            directory = os.open(self._directory, os.O_RDONLY)
            try:
                fcntl.flock(directory, fcntl.LOCK_EX)
                _refuse_if_taken(self.path)
                os.rename(temporary, self.path)
            finally:
                os.close(directory)
        except BaseException:
            sock.close()
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        return sock


def _refuse_if_taken(path: str) -> None:
    """Raise OSError if a server listens at the path, or if the file there is not a socket.

    A socket that a dead server left behind is accepted.
    """
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError(errno.EEXIST, "there is a file here that is no socket", path)
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return
        except (TimeoutError, BlockingIOError):
            pass  # the backlog is full: a server is there, but slow
    message = "another server already listens on this address; stop it first"
    raise OSError(errno.EADDRINUSE, message, path)


check = path_of
listen = UnixListener


def connect(address: str, timeout_s: float | None) -> socket.socket:
    """Make one attempt to connect. Raises OSError; the caller decides which errors mean "no server yet"."""
    path = path_of(address)
    # In a shared directory (sticky, like /tmp) the socket itself must be ours, or root's.
    owner = os.stat(path).st_uid
    if owner not in (os.geteuid(), 0):
        raise PermissionError(errno.EPERM, f"the socket belongs to user {owner}, not to us", path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout_s)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            try:
                sock.connect(path)
                break
            except BlockingIOError:
                # A server is there, and its backlog is full. The kernel waits for room only if the socket has
                # no time limit.
                if deadline is not None and time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_S)
        sock.settimeout(None)
        return sock
    except BaseException:
        sock.close()
        raise
