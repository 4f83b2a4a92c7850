"""TLS over a socket that stays a plain one: what a `TlsSocket` does to bytes on their way.

    send ──encrypt──▶ [outgoing] ──raw.send──▶ network ──raw.recv──▶ [incoming] ──decrypt──▶ recv
            lock                 write lock                                       lock

OpenSSL's object works on two buffers in memory, and a lock lets one thread at a time into it. The
raw socket is read and written outside of that lock, so that one thread may wait for bytes while
another sends, and so that limits which the kernel keeps (SO_RCVTIMEO, MSG_DONTWAIT) work as usual.

Three rules:

1. What was encrypted must leave in that order and in full, or the stream is broken. So a send that
   the socket did not take whole keeps the rest, and says (by a short count or BlockingIOError) how
   much of the caller's data is certain to have left. As with any socket, the caller then sends the rest.
2. Data counts as sent if and only if its record has left in full. Courier calls again what was not
   sent: the peer must not be able to read that.
3. Bytes may have been decrypted, or wait in `incoming`, while the raw socket is silent. Ask
   `pending` before waiting for the socket to become readable.
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
from launchpad.courier.protocol.handshake import NOT_TLS  # OpenSSL does not say that to plain bytes
from launchpad.courier.security.keyring import Credentials
from launchpad.courier.transport import tls_context
from launchpad.courier.transport.stream_socket import NO_SIGNAL

RECORD = 16384  # bytes of data in a TLS record; only the last one of a write has fewer
# What TLS 1.3 adds to them: a header of 5, the kind of record, 16 to prove it intact.
RECORD_OVERHEAD = 22
_PIECE = 64 << 10  # encrypted, or received, at once: more leaves the processor's cache
_JOINED = 32 << 10  # chunks are joined up to here
_BUFFER_BYTES = 4 << 10  # what is received at once for a caller that wants less


def connect(
    raw: socket.socket, credentials: Credentials, address: str, deadline: float | None
) -> TlsSocket:
    """Does the handshake as the client. Closes `raw` when that fails.

    Raises Refused, ProtocolError, TimeoutError or another OSError. The server has the last word:
    it may still refuse our certificate, which the first `recv` or `send` then says.
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
    """The server's end. Its handshake is done while it is read."""
    return TlsSocket(raw, tls_context.make(credentials, is_server=True))


class TlsSocket:
    """What courier uses of a `socket.socket`, encrypted and verified.

    One thread may read while others write. Everything blocks, or not, as the raw socket would; a
    server's end has to be read before it is written to.

    Args:
        raw: a connected stream socket.
        address: where it leads, for errors; None for the server's end.
    """

    def __init__(
        self, raw: socket.socket, context: ssl.SSLContext, address: str | None = None
    ) -> None:
        self.raw = raw
        self._address = address
        self._pid = os.getpid()
        self._lock = Lock()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=address is None)
        #: The handshake is done: data can be sent.
        self.is_ready = False
        # The reader's:
        self._is_verified = False  # the peer has accepted us, since it has sent data
        self._may_decrypt = False
        self._has_ended = False
        # Whose the write lock is:
        self._write_lock = Lock()
        self._unsent: PendingCiphertext | None = None  # not taken whole by the socket yet

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
        """Whether `recv` may have something although the raw socket is silent."""
        return self._may_decrypt

    def recv(self, n: int, flags: int = 0) -> bytes:
        buffer = bytearray(n)
        return bytes(buffer[: self.recv_into(buffer, n, flags)])

    def recv_into(self, buffer: bytearray | memoryview, n: int = 0, flags: int = 0) -> int:
        """At least one byte, 0 at the end of the stream. Honours MSG_DONTWAIT and MSG_WAITALL."""
        while not self.is_ready:
            self.do_handshake(flags & socket.MSG_DONTWAIT)
        view = memoryview(buffer)[:n] if n else memoryview(buffer)
        if flags & socket.MSG_WAITALL:
            done = 0
            try:
                while done < len(view) and (
                    n := self._receive(view[done:], flags & ~socket.MSG_WAITALL)
                ):
                    done += n
            except (BlockingIOError, TimeoutError):
                if not done:
                    raise
            return done
        return self._receive(view, flags)

    def send(self, data: Chunk, flags: int = 0) -> int:
        """How much was sent, which may be less. Then go on with the rest of the same data."""
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
        """`send` for the first few chunks, as many as are worth joining. `ancdata` stays empty."""
        first: list[Chunk] = []
        size = 0
        for chunk in chunks:
            if first and size + len(chunk) > _JOINED:
                break
            first.append(chunk)
            size += len(chunk)
        return self.send(first[0] if len(first) == 1 else b"".join(first), flags)

    def sendall(self, data: Chunk, flags: int = 0) -> None:
        rest = memoryview(data)
        while len(rest):
            rest = rest[self.send(rest, flags) :]

    def close(self) -> None:
        """Sends a close_notify if that is possible without waiting, and closes the raw socket."""
        # A forked child must not send it: the parent is still using the connection.
        if self.is_ready and self._pid == os.getpid():
            with contextlib.suppress(OSError, ValueError):
                self._send_close_notify()
        self.raw.close()

    def __enter__(self) -> TlsSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def do_handshake(self, flags: int = 0) -> None:
        """One step towards `is_ready`: handles what has arrived, and receives once more if need be.

        Raises what `connect` does; for a server's end ConnectionAbortedError, or BlockingIOError
        when nothing has arrived.
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

    # Reading: one thread at a time.

    def _receive(self, view: memoryview, flags: int) -> int:
        """Decrypts what has arrived in full, or what arrives next; 0 at the end of the stream."""
        while True:
            done = 0
            while self._may_decrypt and done < len(view):
                try:
                    with self._lock:
                        n: int = self._tls.read(  # type: ignore[assignment]  # with a buffer, int
                            len(view) - done, view[done:]
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
                done += n
            if done:
                self._is_verified = True
                return done
            if self._has_ended or not self._fill(view, flags):
                return 0

    def _fill(self, view: memoryview, flags: int) -> int:
        """Receives ciphertext, into memory that will be overwritten with the plaintext."""
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
        """Lets the peer know, if that is possible without waiting; raises what has happened."""
        with contextlib.suppress(OSError):
            if not self._flush(socket.MSG_DONTWAIT | NO_SIGNAL) and self._address is None:
                self.raw.send(NOT_TLS, socket.MSG_DONTWAIT | NO_SIGNAL)
        if self._is_verified:
            raise ConnectionAbortedError(errno.ECONNABORTED, str(error)) from error
        raise tls_context.as_handshake_error(error, self._address) from error

    # Writing: the thread that holds the write lock.

    def _acquire_write_lock(self, flags: int) -> None:
        if not self._write_lock.acquire(blocking=not flags & socket.MSG_DONTWAIT):
            raise BlockingIOError(errno.EAGAIN, "another thread is sending")

    def _push(self, flags: int) -> int:
        """Sends what is encrypted; returns how much of the caller's data that was."""
        ciphertext = self._unsent
        assert ciphertext is not None
        try:
            while ciphertext.rest:
                ciphertext.advance(self.raw.send(ciphertext.rest, flags))
        except OSError as error:
            if not isinstance(error, BlockingIOError | TimeoutError):
                self._drop_unsent()
                # A server that refuses our certificate says so before it closes: the better error.
                if self._address is not None and self.is_ready and not self._is_verified:
                    with contextlib.suppress(OSError):
                        self._receive(memoryview(bytearray(1)), socket.MSG_DONTWAIT)
            if n := ciphertext.report_sent():
                return n
            raise
        except BaseException:  # how much has left is unknown
            self._drop_unsent()
            raise
        self._unsent = None
        return ciphertext.report_sent()

    def _drop_unsent(self) -> None:
        """Nothing that fits can follow. What the peer has sent may still be read."""
        self._unsent = None
        with contextlib.suppress(OSError):
            self.raw.shutdown(socket.SHUT_WR)

    def _flush(self, flags: int) -> int:
        """Sends TLS's own messages; how many bytes that was."""
        done = 0
        self._acquire_write_lock(flags)
        try:
            while self._unsent is not None or self._outgoing.pending:
                if self._unsent is not None and self._unsent.n_unreported:
                    break  # that is for the sender to go on with
                if self._unsent is None:
                    with self._lock:
                        self._unsent = PendingCiphertext(self._outgoing.read())
                done += len(self._unsent.rest)
                self._push(flags)
        finally:
            self._write_lock.release()
        return done

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
    """The ciphertext of one write, and how much of the caller's data has left with it.

    Before it there may be TLS's own messages.

    Args:
        data: the ciphertext.
        n_bytes: of the caller's data in it.
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
        """Bytes of the caller's that it does not know to have left."""
        return self._n_bytes - self._n_reported

    def advance(self, n: int) -> None:
        """The socket has taken the first `n` bytes of `rest`."""
        self._n_sent += n
        self.rest = self.rest[n:]

    def report_sent(self) -> int:
        """Bytes of the caller's that have left since the last report: those of whole records."""
        n = self._n_bytes
        if self.rest:
            n_records = max(0, self._n_sent - self._n_before) // (RECORD + RECORD_OVERHEAD)
            n = min(n, n_records * RECORD)
        n_new = n - self._n_reported
        self._n_reported = n
        return n_new
