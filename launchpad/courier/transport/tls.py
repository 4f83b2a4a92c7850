"""TLS over a plain socket: `TlsSocket` encrypts and decrypts the bytes on their way.

    send ──encrypt──▶ [outgoing] ──raw.send──▶ network ──raw.recv──▶ [incoming] ──decrypt──▶ recv
            lock                 write lock                                       lock

OpenSSL's object works on two buffers in memory, and a lock lets one thread at a time use it. The raw socket
is read and written outside this lock. So one thread may wait for bytes while another sends, and limits that
the kernel applies (SO_RCVTIMEO, MSG_DONTWAIT) work as usual.

Three rules:

1. Encrypted data must leave in order and in full, or the stream is broken. So if the socket takes only a part
   of a send, the rest is kept. A short count, or BlockingIOError, tells the caller how much of its data has
   certainly left. As with any socket, the caller then sends the rest.
2. Data counts as sent if and only if its record has left in full. Courier repeats calls that were not sent,
   so the peer must not be able to read any of them.
3. Bytes may be decrypted already, or wait in `incoming`, while the raw socket is silent. Ask `pending` before
   waiting for the socket to become readable.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
import time
from collections.abc import Iterable
from typing import Any, NoReturn

from launchpad.courier.interruptions import Lock
from launchpad.courier.protocol.framing import Chunk
from launchpad.courier.protocol.handshake import NOT_TLS
from launchpad.courier.security.keyring import Credentials
from launchpad.courier.transport import tls_context
from launchpad.courier.transport.stream_socket import NO_SIGNAL

RECORD = 16384  # bytes of data in a TLS record; only the last one of a write has fewer
# The bytes that TLS 1.3 adds to a record: 5 of header, 1 for the kind of record, 16 for authentication.
RECORD_OVERHEAD = 22
# Bytes to encrypt, or receive, at once. With 64 KiB, large messages cost a fifth more CPU time. They also
# wait more often for the GIL if other threads compute, because each step releases it. More than 256 KiB gains
# little. A connection keeps buffers of this size once it has carried a large message.
_PIECE = 256 << 10
_JOINED = 32 << 10  # chunks are joined up to this many bytes
_BUFFER_BYTES = 4 << 10  # bytes received at once for a caller that wants fewer


def connect(
    raw: socket.socket, credentials: Credentials, address: str, deadline: float | None
) -> TlsSocket:
    """Do the handshake as the client. Close `raw` if it fails.

    The server decides last: it may still refuse our certificate after this function has returned. The first
    `recv` or `send` then raises Refused.

    Raises:
        Refused, ProtocolError, TimeoutError, OSError: The handshake failed.
    """
    try:
        sock = TlsSocket(raw, tls_context.make(credentials, is_server=False), address)
        while not sock.is_ready:
            if deadline is not None:
                raw.settimeout(max(0.001, deadline - time.monotonic()))
            sock.do_handshake()
        raw.settimeout(None)
        return sock
    except BaseException:
        raw.close()
        raise


def accept(raw: socket.socket, credentials: Credentials) -> TlsSocket:
    """Return the server's end of a connection. The handshake takes place when this end is read."""
    return TlsSocket(raw, tls_context.make(credentials, is_server=True))


class TlsSocket:
    """An encrypted and verified socket, with the methods of `socket.socket` that courier uses.

    One thread may read while others write. Methods block whenever those of the raw socket would. A server's
    end must be read before it is written to.

    Args:
        raw: A connected stream socket.
        address: The server's address, for errors; None for the server's end.
    """

    def __init__(
        self, raw: socket.socket, context: ssl.SSLContext, address: str | None = None
    ) -> None:
        self.raw = raw
        self._address = address
        self._pid = os.getpid()
        # Held to use OpenSSL's object and its buffers, which only one thread at a time may use. Never held
        # while the raw socket blocks.
        self._lock = Lock()
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=address is None)
        #: True once the handshake is done, so that data can be sent.
        self.is_ready = False
        # Only the thread that reads uses these.
        self._is_verified = False  # the peer has sent data, so it has accepted us
        self._may_decrypt = False
        self._has_ended = False
        # Held to send, so that encrypted data leaves in the order in which it was encrypted. Only the thread
        # that holds it uses `_unsent`.
        self._write_lock = Lock()
        self._unsent: PendingCiphertext | None = None  # data that the socket has not taken in full

    def fileno(self) -> int:
        return self.raw.fileno()

    def settimeout(self, timeout_s: float | None) -> None:
        self.raw.settimeout(timeout_s)

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:
        self.raw.setsockopt(level, option, value)

    def shutdown(self, how: int) -> None:
        """End the raw stream: at once, from any thread, and without a close_notify."""
        self.raw.shutdown(how)

    def pending(self) -> bool:
        """Return True if `recv` may have data although the raw socket is silent."""
        return self._may_decrypt

    def recv(self, n: int, flags: int = 0) -> bytes:
        buffer = bytearray(n)
        return bytes(buffer[: self.recv_into(buffer, n, flags)])

    def recv_into(self, buffer: bytearray | memoryview, n: int = 0, flags: int = 0) -> int:
        """Receive at least one byte. Return how many, or 0 at the end of the stream.

        MSG_DONTWAIT and MSG_WAITALL work as usual.
        """
        while not self.is_ready:
            self.do_handshake(flags & socket.MSG_DONTWAIT)
        view = memoryview(buffer)[:n] if n else memoryview(buffer)
        if flags & socket.MSG_WAITALL:
            n_received = 0
            try:
                while n_received < len(view):
                    n = self._receive(view[n_received:], flags & ~socket.MSG_WAITALL)
                    if not n:
                        break
                    n_received += n
            except (BlockingIOError, TimeoutError):
                if not n_received:
                    raise
            return n_received
        return self._receive(view, flags)

    def send(self, data: Chunk, flags: int = 0) -> int:
        """Send data, and return how many bytes were sent. Begin the next send with the rest of the data."""
        if not len(data):
            return 0
        self._acquire_write_lock(flags)
        try:
            if self._unsent is None:
                piece = memoryview(data)[:_PIECE]
                with self._lock:
                    self._tls.write(piece)
                    self._unsent = PendingCiphertext(self._outgoing.read(), len(piece))
            elif self._unsent.n_unreported > len(data):
                raise ValueError("after a send that was not complete, send the rest of that data")
            return self._push(flags)
        finally:
            self._write_lock.release()

    def sendmsg(self, chunks: Iterable[Chunk], ancdata: Iterable[Any] = (), flags: int = 0) -> int:
        """Send the first few chunks, as many as are worth joining. `ancdata` must be empty."""
        first: list[Chunk] = []
        size = 0
        for chunk in chunks:
            if first and size + len(chunk) > _JOINED:
                break
            first.append(chunk)
            size += len(chunk)
        return self.send(first[0] if len(first) == 1 else b"".join(first), flags)

    def sendall(self, data: Chunk, flags: int = 0) -> None:
        remainder = memoryview(data)
        while len(remainder):
            remainder = remainder[self.send(remainder, flags) :]

    def close(self) -> None:
        """Send a close_notify if that is possible without waiting, and close the raw socket."""
        # A forked child must not send a close_notify, because the parent still uses the connection.
        if self.is_ready and self._pid == os.getpid():
            with contextlib.suppress(OSError, ValueError):
                self._send_close_notify()
        self.raw.close()

    def __enter__(self) -> TlsSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def do_handshake(self, flags: int = 0) -> None:
        """Take one step towards `is_ready`: handle data that has arrived, and receive once more if necessary.

        Raises the same errors as `connect`. A server's end raises ConnectionAbortedError, or BlockingIOError
        if nothing has arrived.
        """
        try:
            with self._lock:
                self._tls.do_handshake()
            self.is_ready = True
            self._may_decrypt = self._incoming.pending > 0
        except ssl.SSLWantReadError:
            self._may_decrypt = False
        except ssl.SSLError as error:
            self._fail(error)
        self._flush(flags)
        if not self.is_ready and not self._fill(memoryview(bytearray(_BUFFER_BYTES)), flags):
            raise ConnectionResetError(errno.ECONNRESET, "the peer closed during the handshake")

    # Methods for reading. Only one thread at a time may read.

    def _receive(self, view: memoryview, flags: int) -> int:
        """Decrypt the records that have arrived, or receive more first. Return 0 at the end of the stream."""
        while True:
            n_decrypted = 0
            while self._may_decrypt and n_decrypted < len(view):
                try:
                    with self._lock:
                        n: int = self._tls.read(  # type: ignore[assignment]  # with a buffer, int
                            len(view) - n_decrypted, view[n_decrypted:]
                        )
                        self._may_decrypt = self._incoming.pending > 0 or self._tls.pending() > 0
                except ssl.SSLWantReadError:
                    self._may_decrypt = False
                    break
                except ssl.SSLError as error:
                    self._fail(error)
                if not n:
                    self._has_ended = True
                    self._may_decrypt = False
                n_decrypted += n
            if n_decrypted:
                self._is_verified = True
                return n_decrypted
            if self._has_ended or not self._fill(view, flags):
                return 0

    def _fill(self, view: memoryview, flags: int) -> int:
        """Receive ciphertext, into memory that the plaintext will overwrite."""
        is_large = len(view) >= _BUFFER_BYTES
        space = view[:_PIECE] if is_large else memoryview(bytearray(_BUFFER_BYTES))
        n = self.raw.recv_into(space, 0, flags)
        if n:
            with self._lock:
                self._incoming.write(space[:n])
            self._may_decrypt = True
        else:
            self._has_ended = True
        return n

    def _fail(self, error: ssl.SSLError) -> NoReturn:
        """Notify the peer if that is possible without waiting, and raise the error."""
        with contextlib.suppress(OSError):
            # OpenSSL has no answer to a client that sends plaintext, so the server sends one itself.
            if not self._flush(socket.MSG_DONTWAIT | NO_SIGNAL) and self._address is None:
                self.raw.send(NOT_TLS, socket.MSG_DONTWAIT | NO_SIGNAL)
        if self._is_verified:
            raise ConnectionAbortedError(errno.ECONNABORTED, str(error)) from error
        raise tls_context.as_handshake_error(error, self._address) from error

    # Methods for writing. Only the thread that holds the write lock writes.

    def _acquire_write_lock(self, flags: int) -> None:
        if not self._write_lock.acquire(blocking=not flags & socket.MSG_DONTWAIT):
            raise BlockingIOError(errno.EAGAIN, "another thread is sending")

    def _push(self, flags: int) -> int:
        """Send the encrypted data, and return how many bytes of the caller's data have left with it."""
        ciphertext = self._unsent
        assert ciphertext is not None
        try:
            while ciphertext.rest:
                ciphertext.advance(self.raw.send(ciphertext.rest, flags))
        except OSError as error:
            if not isinstance(error, BlockingIOError | TimeoutError):
                self._drop_unsent()
                # A server that refuses our certificate sends the reason before it closes. Reading that raises
                # a better error.
                if self._address is not None and self.is_ready and not self._is_verified:
                    with contextlib.suppress(OSError):
                        self._receive(memoryview(bytearray(1)), socket.MSG_DONTWAIT)
            n = ciphertext.report_sent()
            if n:
                return n
            raise
        except BaseException:
            # The send was interrupted, so it is unknown how much has left.
            self._drop_unsent()
            raise
        self._unsent = None
        return ciphertext.report_sent()

    def _drop_unsent(self) -> None:
        """Stop writing, because the stream can't be continued. Data from the peer may still be read."""
        self._unsent = None
        with contextlib.suppress(OSError):
            self.raw.shutdown(socket.SHUT_WR)

    def _flush(self, flags: int) -> int:
        """Send TLS's own messages, and return their size in bytes."""
        n_bytes = 0
        self._acquire_write_lock(flags)
        try:
            while self._unsent is not None or self._outgoing.pending:
                if self._unsent is not None and self._unsent.n_unreported:
                    break  # the thread that sends this data will send the rest of it, too
                if self._unsent is None:
                    with self._lock:
                        self._unsent = PendingCiphertext(self._outgoing.read())
                n_bytes += len(self._unsent.rest)
                self._push(flags)
        finally:
            self._write_lock.release()
        return n_bytes

    def _send_close_notify(self) -> None:
        flags = socket.MSG_DONTWAIT | NO_SIGNAL
        self._acquire_write_lock(flags)
        try:
            if self._unsent is None and self._lock.acquire(blocking=False):
                try:
                    with contextlib.suppress(ssl.SSLError):
                        self._tls.unwrap()
                    close_notify = self._outgoing.read()
                finally:
                    self._lock.release()
                self.raw.send(close_notify, flags)
        finally:
            self._write_lock.release()


class PendingCiphertext:
    """The ciphertext of one write. It knows how much of the caller's data has left.

    TLS's own messages may come before the caller's data.

    Args:
        data: The ciphertext.
        n_bytes: The size of the caller's data in it.
    """

    __slots__ = ("_n_before", "_n_bytes", "_n_reported", "_n_sent", "rest")

    def __init__(self, data: bytes, n_bytes: int = 0) -> None:
        n_records = -(-n_bytes // RECORD)
        self.rest = memoryview(data)
        self._n_bytes = n_bytes
        self._n_before = len(data) - n_bytes - n_records * RECORD_OVERHEAD
        self._n_sent = 0
        self._n_reported = 0

    @property
    def n_unreported(self) -> int:
        """The bytes of the caller's data that are not yet reported as sent."""
        return self._n_bytes - self._n_reported

    def advance(self, n: int) -> None:
        """Note that the socket has taken the first `n` bytes of `rest`."""
        self._n_sent += n
        self.rest = self.rest[n:]

    def report_sent(self) -> int:
        """Return the bytes of the caller's data that have left since the last report, in whole records."""
        n = self._n_bytes
        if self.rest:
            n_records = max(0, self._n_sent - self._n_before) // (RECORD + RECORD_OVERHEAD)
            n = min(n, n_records * RECORD)
        n_new = n - self._n_reported
        self._n_reported = n
        return n_new
