"""Unix stream sockets: how a server becomes reachable at a path, and how a client gets there.

A path is published last. The server binds to a temporary name beside it, sets mode 0600, listens,
and only then renames onto the path. So no client ever meets a socket that is not listening yet, and
the file that a dead server left is replaced in one step. A server that listens is never replaced.

A user who may connect may run code here. That is why the directory has to be ours (or root's) and closed
to writing by others, which is checked at both ends: in another directory any user could replace
the server, and clients would show that user their token.
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
_PAUSE_S = 0.01  # until the next attempt where the backlog is full
_FRESH, _SOCKET = re.compile(r"courier-[0-9a-f]{12}"), "s"
_STARTING_S = 60.0  # a directory without a socket is of a server that starts, or died doing so

is_stale = None  # a write to a peer that has closed fails at once


def path_of(address: str) -> str:
    """The path in `unix:/path`; a ValueError when it cannot be a socket's path."""
    path = address.removeprefix(PREFIX)
    if not address.startswith(PREFIX) or not os.path.isabs(path):
        raise ValueError(f"{address!r} is not of the form unix:/absolute/path")
    if (size := len(os.fsencode(path))) > MAX_PATH:
        raise ValueError(
            f"the socket path {path!r} has {size} bytes, and the system takes {MAX_PATH} at most. "
            "Choose a shorter directory, for example one directly under /tmp."
        )
    return path


def fresh_path() -> str:
    """A path in a directory of our own that does not exist yet; short enough wherever TMPDIR is."""
    import tempfile

    name = f"courier-{os.urandom(6).hex()}/{_SOCKET}"
    path = os.path.join(tempfile.gettempdir(), name)
    return path if len(os.fsencode(path)) <= MAX_PATH - 8 else f"/tmp/{name}"


def _sweep(folder: str) -> None:
    """Removes the directories of servers without an address that were killed: nothing listens there."""
    with os.scandir(folder) as entries:
        found = [entry.path for entry in entries if _FRESH.fullmatch(entry.name)]
    for directory in found:
        with contextlib.suppress(OSError):  # removed meanwhile, or a server is there
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
    """A published listening socket. `close` takes the file away again, if it is still ours."""

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
        # Another user must not be able to put or replace a socket there.
        try:
            check_unchangeable(Path(self._directory))
            status = os.stat(self._directory)
            if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
                mode = stat.S_IMODE(status.st_mode)
                what = f"others may write to it (mode {mode:o}); chmod it to 0700"
                raise PermissionError(errno.EPERM, what, self._directory)
            self.sock = self._publish()
        except BaseException:
            self._remove_directory()
            raise
        self._published = os.lstat(path)

    @property
    def is_lost(self) -> bool:
        """The file has been removed, or another put in its place."""
        try:
            return not os.path.samestat(os.lstat(self.path), self._published)
        except OSError:
            return True

    def republish(self) -> None:
        """Listens on another socket, at the same path.

        Raises OSError: another server listens there, or the directory is gone too (it may have been
        removed for good, so it is not made again).
        """
        sock = self._publish()
        self.sock.close()
        self.sock, self._published = sock, os.lstat(self.path)

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
            # One server at a time publishes here, so that of two started together one sees the other.
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
    """Raises OSError where a server listens, or a file is no socket; not where a dead server left one."""
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
            pass  # a full backlog: a server is there, if slow
    what = "another server already listens on this address; stop it first"
    raise OSError(errno.EADDRINUSE, what, path)


check = path_of
listen = UnixListener


def connect(address: str, timeout_s: float | None) -> socket.socket:
    """One attempt to connect. Raises OSError; which ones mean "not up yet" the caller knows."""
    path = path_of(address)
    # In a shared directory (sticky, like /tmp) the socket itself has to be ours.
    if (owner := os.stat(path).st_uid) not in (os.geteuid(), 0):
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
                # A server is there, and its backlog is full. The kernel waits for room only where there is no
                # time limit.
                if deadline is not None and time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_S)
        sock.settimeout(None)
        return sock
    except BaseException:
        sock.close()
        raise
