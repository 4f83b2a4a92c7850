"""Stream sockets: functions that all transports use, and a socket pair that wakes a polling thread."""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from launchpad.courier.interruptions import Lock, is_interruption
from launchpad.courier.protocol.framing import Chunk

MAX_GATHER = 1024  # IOV_MAX

# A write to a peer that is gone raises an error and no signal, even if the program has restored SIGPIPE.
NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)
# These are plain numbers, because joining enum flags is slow.
DONTWAIT = int(getattr(socket, "MSG_DONTWAIT", 0))
SEND_NOW = int(NO_SIGNAL) | DONTWAIT
PEEK_NOW = int(socket.MSG_PEEK) | DONTWAIT


class Socket(Protocol):
    """The methods of a connected `socket.socket`, or of a wrapper around one, that courier uses."""

    def send(self, data: Chunk, flags: int = ..., /) -> int: ...

    def sendall(self, data: Chunk, flags: int = ..., /) -> None: ...

    def sendmsg(
        self, chunks: Iterable[Chunk], ancillary: Iterable[Any] = ..., flags: int = ..., /
    ) -> int: ...

    def recv(self, n: int, flags: int = ..., /) -> bytes: ...

    def recv_into(self, buffer: Any, n: int = ..., flags: int = ...) -> int: ...

    def setsockopt(self, level: int, name: int, value: Any, /) -> None: ...

    def settimeout(self, timeout_s: float | None, /) -> None: ...

    def shutdown(self, how: int, /) -> None: ...

    def fileno(self) -> int: ...

    def close(self) -> None: ...


class Listener:
    """A listening socket at which a server's clients arrive."""

    address: str
    sock: socket.socket  # becomes readable when a client has connected

    @property
    def is_lost(self) -> bool:
        """True if clients that connect to the address no longer arrive here."""
        return False

    def republish(self) -> None:
        """Listen at the same address on another `sock`. For a listener that can be lost."""

    def accept(self) -> Socket:
        """Return the next client. Never blocks.

        Raises:
            OSError: There is no client. If none has connected yet, the error is a BlockingIOError.
        """
        raise NotImplementedError

    def close(self) -> None:
        self.sock.close()


def raw_of(sock: Socket) -> socket.socket:
    """Return the kernel's socket, without any wrappers."""
    raw: socket.socket = getattr(sock, "raw", sock)  # type: ignore[arg-type]
    return raw


class SocketWrapper:
    """A base class for wrappers around a socket. A subclass adds the methods that are missing here."""

    def __init__(self, sock: Socket) -> None:
        self._sock = sock
        self.raw = raw_of(sock)
        self.pending = partial(has_pending, sock)
        self.recv = sock.recv
        self.sendall = sock.sendall
        self.setsockopt = sock.setsockopt
        self.settimeout = sock.settimeout
        self.shutdown = sock.shutdown
        self.fileno = sock.fileno


def is_unix(sock: Socket) -> bool:
    """Return True for a Unix socket, over which files can be sent."""
    return raw_of(sock).family == socket.AF_UNIX


def has_pending(sock: Socket) -> bool:
    """Return True if data can be received although the descriptor may not be readable.

    Ask before you wait for the descriptor to become readable. Even if this is True, a read may still find too
    little data.
    """
    pending = getattr(sock, "pending", None)
    return pending is not None and pending()


def set_timeouts(
    sock: Socket,
    timeout_s: float,
    options: Iterable[int] = (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO),
) -> None:
    """Limit the time of each single send and receive; 0 means no limit.

    After that time, the call raises BlockingIOError.

    The kernel measures this time. Python's own `settimeout` would poll before every read and write, which is
    one more system call each.
    """
    micros = max(1, int(timeout_s * 1e6)) if timeout_s else 0
    packed = struct.pack("@ll", *divmod(micros, 1_000_000))
    for option in options:
        sock.setsockopt(socket.SOL_SOCKET, option, packed)


#: Like `set_timeouts`, for receiving only.
set_receive_timeout = partial(set_timeouts, options=(socket.SO_RCVTIMEO,))


def blocking_pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets that block, whatever the script's `socket.setdefaulttimeout` is."""
    ours, theirs = socket.socketpair()
    ours.setblocking(True)
    theirs.setblocking(True)
    return ours, theirs


def receive_exactly(sock: Socket, size: int) -> bytes:
    """Receive exactly `size` bytes. Raises ConnectionResetError if the stream ends earlier."""
    data = bytearray()
    while len(data) < size:
        chunk = sock.recv(size - len(data))
        if not chunk:
            raise ConnectionResetError(errno.ECONNRESET, "the peer closed during the handshake")
        data += chunk
    return bytes(data)


def send_all(sock: Socket, chunks: Sequence[Chunk]) -> None:
    """Write all chunks, many with one system call. If this raises, the last byte was not written."""
    n = 0
    if len(chunks) <= MAX_GATHER:
        n = sock.sendmsg(chunks, (), NO_SIGNAL)
        if n == sum(map(len, chunks)):
            return
    unsent = [memoryview(chunk) for chunk in chunks if len(chunk)]
    skip_sent(unsent, n)
    send_rest(sock, unsent)


def send_rest(sock: Socket, unsent: list[memoryview]) -> None:
    """Write all chunks in `unsent`. Remove what is written, so that the caller can try again."""
    while unsent:
        skip_sent(unsent, sock.sendmsg(unsent[:MAX_GATHER], (), NO_SIGNAL))


def skip_sent(unsent: list[memoryview], n: int) -> None:
    """Drop the first `n` bytes of `unsent`."""
    unsent[:] = left_after(unsent, n)


def left_after(chunks: Sequence[Chunk], n: int) -> list[memoryview]:
    """Return the chunks without their first `n` bytes."""
    n_whole = 0
    while n_whole < len(chunks) and n >= len(chunks[n_whole]):
        n -= len(chunks[n_whole])
        n_whole += 1
    unsent = [memoryview(chunk) for chunk in chunks[n_whole:]]
    if n:
        unsent[0] = unsent[0][n:]
    return unsent


class WakeupSocketpair:
    """A socket pair that wakes a thread which waits in `poll` or `select`.

    Example:
        poller.register(wakeup, select.POLLIN)
        poller.poll()       # returns when another thread calls wakeup.wake()
        wakeup.drain()      # first; then look at what the other thread has done
    """

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._is_awake = False
        # Held during a write and during `close`, so that no thread writes to a descriptor that is closed.
        self._lock = Lock()

    def fileno(self) -> int:
        return self._reader.fileno()

    def wake(self) -> None:
        """Wake the thread. Never blocks. Does nothing once the pair is closed."""
        if self._is_awake:
            return
        self._is_awake = True
        try:
            with self._lock:
                self._writer.send(b"!")
        except BaseException as error:
            if isinstance(error, OSError) and not is_interruption(error):
                return  # the socket's buffer is full, or it is closed
            self._is_awake = False
            raise

    def drain(self) -> None:
        """Read all wakeups, so that the descriptor isn't readable again before the next `wake`."""
        with contextlib.suppress(BlockingIOError):
            while len(self._reader.recv(4096)) == 4096:
                pass
        # This comes last. A `wake` before this line sends nothing. The caller misses nothing all the same,
        # because it looks at what other threads have done only after this line.
        self._is_awake = False

    def close(self) -> None:
        with self._lock:
            self.drop_inherited()

    def drop_inherited(self) -> None:
        """Close both sockets without the lock, which may never be released in a forked child."""
        self._reader.close()
        self._writer.close()
