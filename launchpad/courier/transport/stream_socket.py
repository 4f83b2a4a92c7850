"""What all transports do with stream sockets, and the one that wakes a thread which polls them."""

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

# A peer that is gone is an error, not a signal, even where the program has restored SIGPIPE.
NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)
# As numbers, which flags are slow to become where they are joined.
DONTWAIT = int(getattr(socket, "MSG_DONTWAIT", 0))
SEND_NOW, PEEK_NOW = int(NO_SIGNAL) | DONTWAIT, int(socket.MSG_PEEK) | DONTWAIT


class Socket(Protocol):
    """What courier uses of a connected `socket.socket`, which is one, and of what wraps one."""

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
    """Where a server's clients arrive."""

    address: str
    sock: socket.socket  # becomes readable when a client has connected

    @property
    def is_lost(self) -> bool:
        """Clients of the address do not arrive here any more."""
        return False

    def republish(self) -> None:
        """Listens at the same address on another `sock`. For a listener that can be lost."""

    def accept(self) -> Socket:
        """The next client. Never blocks. Raises OSError, BlockingIOError among them, when there is none."""
        raise NotImplementedError

    def close(self) -> None:
        self.sock.close()


def raw_of(sock: Socket) -> socket.socket:
    """The kernel's socket, whatever is around it."""
    raw: socket.socket = getattr(sock, "raw", sock)  # type: ignore[arg-type]
    return raw


class SocketWrapper:
    """A socket around another one. What is not said here, a subclass does."""

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
    """Whether files can be sent over it."""
    return raw_of(sock).family == socket.AF_UNIX


def has_pending(sock: Socket) -> bool:
    """Whether something can be received although the descriptor may not be readable.

    To be asked before a thread waits for it to become so. A read may then still find too little.
    """
    pending = getattr(sock, "pending", None)
    return pending is not None and pending()


def set_timeouts(
    sock: Socket,
    timeout_s: float,
    options: Iterable[int] = (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO),
) -> None:
    """Limits each single send and receive, 0 for no limit; past it they raise BlockingIOError.

    The kernel keeps this time. Python's own `settimeout` would poll before every read and write:
    one more system call each.
    """
    micros = max(1, int(timeout_s * 1e6)) if timeout_s else 0
    packed = struct.pack("@ll", *divmod(micros, 1_000_000))
    for option in options:
        sock.setsockopt(socket.SOL_SOCKET, option, packed)


#: Like `set_timeouts`, for receiving only.
set_receive_timeout = partial(set_timeouts, options=(socket.SO_RCVTIMEO,))


def blocking_pair() -> tuple[socket.socket, socket.socket]:
    """Returns two connected sockets that block, whatever a script gives `socket.setdefaulttimeout`."""
    ours, theirs = socket.socketpair()
    ours.setblocking(True)
    theirs.setblocking(True)
    return ours, theirs


def receive_exactly(sock: Socket, size: int) -> bytes:
    """`size` bytes, or ConnectionResetError when the stream ends before."""
    data = bytearray()
    while len(data) < size:
        chunk = sock.recv(size - len(data))
        if not chunk:
            raise ConnectionResetError(errno.ECONNRESET, "the peer closed during the handshake")
        data += chunk
    return bytes(data)


def send_all(sock: Socket, chunks: Sequence[Chunk]) -> None:
    """Writes all chunks, gathered. When it raises, the last byte has not been written."""
    n = 0
    if len(chunks) <= MAX_GATHER:
        n = sock.sendmsg(chunks, (), NO_SIGNAL)
        if n == sum(map(len, chunks)):
            return
    rest = [memoryview(chunk) for chunk in chunks if len(chunk)]
    skip_sent(rest, n)
    send_rest(sock, rest)


def send_rest(sock: Socket, rest: list[memoryview]) -> None:
    """`send_all`, taking from `rest` what has been written, so that it can be called again."""
    while rest:
        skip_sent(rest, sock.sendmsg(rest[:MAX_GATHER], (), NO_SIGNAL))


def skip_sent(rest: list[memoryview], n: int) -> None:
    """Drops the first `n` bytes of `rest`."""
    rest[:] = left_after(rest, n)


def left_after(chunks: Sequence[Chunk], n: int) -> list[memoryview]:
    """The chunks without their first `n` bytes."""
    whole = 0
    while whole < len(chunks) and n >= len(chunks[whole]):
        n -= len(chunks[whole])
        whole += 1
    left = [memoryview(chunk) for chunk in chunks[whole:]]
    if n:
        left[0] = left[0][n:]
    return left


class WakeupSocketpair:
    """Wakes a thread that waits in `poll` or `select`, and then drains it.

    Example:
        poller.register(wakeup, select.POLLIN)
        poller.poll()       # returns when another thread calls wakeup.wake()
        wakeup.drain()      # first; then looks at what the other thread has done
    """

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._is_awake = False
        # A descriptor is not closed while another thread writes to it.
        self._lock = Lock()

    def fileno(self) -> int:
        return self._reader.fileno()

    def wake(self) -> None:
        """Never blocks. Does nothing once it is closed."""
        if self._is_awake:
            return
        self._is_awake = True
        try:
            with self._lock:
                self._writer.send(b"!")
        except BaseException as error:
            if isinstance(error, OSError) and not is_interruption(error):
                return  # full, or closed
            self._is_awake = False
            raise

    def drain(self) -> None:
        """Until the next `wake`, there is nothing to read."""
        with contextlib.suppress(BlockingIOError):
            while len(self._reader.recv(4096)) == 4096:
                pass
        # Last: what a thread did before a wake that came to nothing until here, we look at after this.
        self._is_awake = False

    def close(self) -> None:
        with self._lock:
            self.drop_inherited()

    def drop_inherited(self) -> None:
        """For a forked child, in which the lock may be held for ever."""
        self._reader.close()
        self._writer.close()
