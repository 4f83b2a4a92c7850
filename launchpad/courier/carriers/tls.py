"""TLS over a socket that stays a plain one: what a `TlsSocket` does to bytes on their way.

    send ──seal──▶ [outgoing] ──raw.send──▶ network ──raw.recv──▶ [incoming] ──unseal──▶ recv
           lock                 write lock                                     lock

OpenSSL's object works on two buffers in memory, and a lock lets one thread at a time into it. The
raw socket is read and written outside of that lock, so that one thread may wait for bytes while
another sends, and so that limits which the kernel keeps (SO_RCVTIMEO, MSG_DONTWAIT) work as ever.

Three rules:

1. What was sealed must leave in that order and in full, or the stream is broken. So a send that
   the socket did not take whole keeps the rest, and says (by a short count or BlockingIOError) how
   much of the caller's data is certain to have left. As ever, the caller then sends the rest.
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
import threading
import time
from collections.abc import Iterable
from typing import Any, NoReturn

from launchpad.courier.carriers import tls_context
from launchpad.courier.carriers.sealed import Sealed
from launchpad.courier.carriers.sockets import NO_SIGNAL
from launchpad.courier.carriers.tls_errors import as_broken, as_client_error, as_server_error
from launchpad.courier.protocol.greeting import NOT_TLS  # OpenSSL does not say that to plain bytes
from launchpad.courier.protocol.wire import Chunk
from launchpad.courier.trust.credentials import Credentials

_PIECE = 64 << 10  # sealed, or received, at once: more leaves the processor's cache
_JOINED = 32 << 10  # chunks are joined up to here
_ROOM = 4 << 10  # what is received at once for a caller who wants less


def connect(
    raw: socket.socket, credentials: Credentials, address: str, deadline: float | None
) -> TlsSocket:
    """Shakes hands as the client. Closes `raw` when that fails.

    Raises Refused, ProtocolError, TimeoutError or another OSError. The server has the last word:
    it may still refuse our certificate, which the first `recv` or `send` then says.
    """
    try:
        sock = TlsSocket(raw, tls_context.for_client(credentials), address)
        while not sock.is_ready:
            if deadline is not None:
                raw.settimeout(max(0.001, deadline - time.monotonic()))
            sock.shake_hands()
        raw.settimeout(None)
        return sock
    except BaseException:
        raw.close()
        raise


def accept(raw: socket.socket, credentials: Credentials) -> TlsSocket:
    """The server's end. It shakes hands while it is read."""
    return TlsSocket(raw, tls_context.for_server(credentials))


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
        self._lock = threading.Lock()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=address is None)
        #: Hands have been shaken: data can be sent.
        self.is_ready = False
        # The reader's:
        self._is_trusted = False  # the peer has accepted us, since it has sent data
        self._may_unseal = False
        self._has_ended = False
        # Whose the write lock is:
        self._write_lock = threading.Lock()
        self._sealed: Sealed | None = None  # not taken whole by the socket yet

        self.fileno = raw.fileno
        self.settimeout = raw.settimeout
        self.setblocking = raw.setblocking
        self.setsockopt = raw.setsockopt
        self.getsockopt = raw.getsockopt
        self.getsockname = raw.getsockname
        self.getpeername = raw.getpeername

    def pending(self) -> bool:
        """Whether `recv` may have something although the raw socket is silent."""
        return self._may_unseal

    def recv(self, n: int, flags: int = 0) -> bytes:
        buffer = bytearray(n)
        return bytes(buffer[: self.recv_into(buffer, n, flags)])

    def recv_into(self, buffer: bytearray | memoryview, n: int = 0, flags: int = 0) -> int:
        """At least one byte, 0 at the end of the stream. Honours MSG_DONTWAIT and MSG_WAITALL."""
        while not self.is_ready:
            self.shake_hands(flags & socket.MSG_DONTWAIT)
        view = memoryview(buffer)[:n] if n else memoryview(buffer)
        if flags & socket.MSG_WAITALL:
            return self._receive_all(view, flags & ~socket.MSG_WAITALL)
        return self._receive(view, flags)

    def send(self, data: Chunk, flags: int = 0) -> int:
        """How much was sent, which may be less. Then go on with the rest of the same data."""
        if not len(data):
            return 0
        self._take_write_lock(flags)
        try:
            if self._sealed is None:
                self._sealed = self._seal(memoryview(data)[:_PIECE])
            elif self._sealed.n_untold > len(data):
                raise ValueError("after a send that was not complete, send the rest of that data")
            return self._push(flags)
        finally:
            self._write_lock.release()

    def sendmsg(self, chunks: Iterable[Chunk], ancdata: Iterable[Any] = (), flags: int = 0) -> int:
        """`send` for the first few chunks, as many as are worth joining. `ancdata` stays empty."""
        return self.send(_join_first(chunks), flags)

    def sendall(self, data: Chunk, flags: int = 0) -> None:
        rest = memoryview(data)
        while len(rest):
            rest = rest[self.send(rest, flags) :]

    def shutdown(self, how: int) -> None:
        """Ends the raw stream: at once, from any thread, and without a word of TLS."""
        self.raw.shutdown(how)

    def close(self) -> None:
        """Says goodbye if that is possible without waiting, and closes the raw socket."""
        # In a forked child it is not ours to speak: the parent is still using the connection.
        if self.is_ready and self._pid == os.getpid():
            with contextlib.suppress(OSError, ValueError):
                self._say_goodbye()
        self.raw.close()

    def __enter__(self) -> TlsSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def shake_hands(self, flags: int = 0) -> None:
        """One step towards `is_ready`: handles what has arrived, and receives once more if need be.

        Raises what `connect` does; for a server's end ConnectionAbortedError, or BlockingIOError
        when nothing has arrived.
        """
        try:
            with self._lock:
                self._tls.do_handshake()
            self.is_ready = True
            self._may_unseal = self._incoming.pending > 0
        except ssl.SSLWantReadError:
            self._may_unseal = False
        except ssl.SSLError as error:
            self._fail(error)
        self._flush(flags)
        if not self.is_ready and not self._fill(memoryview(bytearray(_ROOM)), flags):
            raise ConnectionResetError(errno.ECONNRESET, "the peer closed while shaking hands")

    # Reading: one thread at a time.

    def _receive_all(self, view: memoryview, flags: int) -> int:
        done = 0
        try:
            while done < len(view) and (n := self._receive(view[done:], flags)):
                done += n
        except (BlockingIOError, TimeoutError):
            if not done:
                raise
        return done

    def _receive(self, view: memoryview, flags: int) -> int:
        while True:
            if n := self._unseal(view):
                self._is_trusted = True
                return n
            if self._has_ended or not self._fill(view, flags):
                return 0

    def _unseal(self, view: memoryview) -> int:
        """Decrypts what has arrived in full; 0 if that is nothing, or the end of the stream."""
        done = 0
        while self._may_unseal and done < len(view):
            try:
                with self._lock:
                    n: int = self._tls.read(  # type: ignore[assignment]  # with a buffer, int
                        len(view) - done, view[done:]
                    )
                    self._may_unseal = self._incoming.pending > 0 or self._tls.pending() > 0
            except ssl.SSLWantReadError:
                self._may_unseal = False
                break
            except ssl.SSLError as error:
                self._fail(error)
            if not n:
                self._has_ended = True
                self._may_unseal = False
            done += n
        return done

    def _fill(self, view: memoryview, flags: int) -> int:
        """Receives ciphertext, into memory that will be overwritten with what it says."""
        room = view[:_PIECE] if len(view) >= _ROOM else memoryview(bytearray(_ROOM))
        n = self.raw.recv_into(room, 0, flags)
        if n:
            with self._lock:
                self._incoming.write(room[:n])
            self._may_unseal = True
        else:
            self._has_ended = True
        return n

    def _fail(self, error: ssl.SSLError) -> NoReturn:
        """Lets the peer know, if that is possible without waiting; raises what has happened."""
        with contextlib.suppress(OSError):
            if not self._flush(socket.MSG_DONTWAIT | NO_SIGNAL) and self._address is None:
                self.raw.send(NOT_TLS, socket.MSG_DONTWAIT | NO_SIGNAL)
        if self._is_trusted:
            raise as_broken(error) from error
        if self._address is None:
            raise as_server_error(error) from error
        raise as_client_error(error, self._address) from error

    # Writing: who has the write lock.

    def _take_write_lock(self, flags: int) -> None:
        if not self._write_lock.acquire(blocking=not flags & socket.MSG_DONTWAIT):
            raise BlockingIOError(errno.EAGAIN, "another thread is sending")

    def _seal(self, view: memoryview) -> Sealed:
        with self._lock:
            self._tls.write(view)
            return Sealed(self._outgoing.read(), len(view))

    def _push(self, flags: int) -> int:
        """Sends what is sealed; returns how much of the caller's data that was."""
        sealed = self._sealed
        assert sealed is not None
        try:
            while sealed.rest:
                sealed.advance(self.raw.send(sealed.rest, flags))
        except OSError as error:
            if not isinstance(error, BlockingIOError | TimeoutError):
                self._give_up_sending()
                self._look_for_refusal()
            if n := sealed.tell():
                return n
            raise
        except BaseException:  # who knows how much has left
            self._give_up_sending()
            raise
        self._sealed = None
        return sealed.tell()

    def _give_up_sending(self) -> None:
        """Nothing that fits can follow. What the peer has sent may still be read."""
        self._sealed = None
        with contextlib.suppress(OSError):
            self.raw.shutdown(socket.SHUT_WR)

    def _flush(self, flags: int) -> int:
        """Sends what TLS has to say for itself; how many bytes that was."""
        done = 0
        self._take_write_lock(flags)
        try:
            while self._sealed is not None or self._outgoing.pending:
                if self._sealed is not None and self._sealed.n_untold:
                    break  # that is for the sender to go on with
                if self._sealed is None:
                    with self._lock:
                        self._sealed = Sealed(self._outgoing.read())
                done += len(self._sealed.rest)
                self._push(flags)
        finally:
            self._write_lock.release()
        return done

    def _look_for_refusal(self) -> None:
        """A server that refuses our certificate says so before it closes: the better error."""
        if self._address is not None and self.is_ready and not self._is_trusted:
            with contextlib.suppress(OSError):
                self._receive(memoryview(bytearray(1)), socket.MSG_DONTWAIT)

    def _say_goodbye(self) -> None:
        flags = socket.MSG_DONTWAIT | NO_SIGNAL
        self._take_write_lock(flags)
        try:
            if self._sealed is None and self._lock.acquire(blocking=False):
                try:
                    with contextlib.suppress(ssl.SSLError):
                        self._tls.unwrap()
                    farewell = self._outgoing.read()
                finally:
                    self._lock.release()
                self.raw.send(farewell, flags)
        finally:
            self._write_lock.release()


def _join_first(chunks: Iterable[Chunk]) -> Chunk:
    """The first chunk, or as many small ones as fit together; never empty if there is anything."""
    joined: list[Chunk] = []
    size = 0
    for chunk in chunks:
        if joined and size + len(chunk) > _JOINED:
            break
        joined.append(chunk)
        size += len(chunk)
    return joined[0] if len(joined) == 1 else b"".join(joined)
