"""The large buffers of a connection between processes of one host, past its socket (segments.py).

    frame:  notes: SEGMENT ── descriptor (24 bytes) · the length of each buffer (8 bytes each)
            buffers: those below LARGE
    in the segment, in their order: the others

The file of a segment that the other side has not seen yet goes along with the first byte of the
frame, and is mapped as soon as it arrives. What cannot be shared, for whatever reason, goes through
the socket: a message without the note.
"""

from __future__ import annotations

import array
import socket
import struct
from collections.abc import Iterable, Sequence
from typing import Any

from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol import framing, headers
from launchpad.courier.protocol.headers import SEGMENT
from launchpad.courier.shm.receiver import MappedSegments
from launchpad.courier.shm.segments import DESCRIPTOR_SIZE, LARGE
from launchpad.courier.shm.sender import PeerSegments, SharedBuffers, pool, wrap
from launchpad.courier.transport import stream_socket
from launchpad.courier.transport.stream_socket import Socket

WINDOW_S = 300e-6  # to look out for an answer: about as long as megabytes take
_MAX_FILES = 16  # that come with one read
_SPACE = socket.CMSG_SPACE(_MAX_FILES * 4)
_CLOSE_ON_EXEC = socket.MSG_CMSG_CLOEXEC


class ShmSocket:
    """A connection whose ends share memory.

    Example:
        sock = ShmSocket(sock)
        if (parcel := sock.wrap(buffers)) is not None:
            sock.sendmsg(wire.encode(…, parcel.small, 0, sock.describe(parcel)))
            parcel.release()

    One thread at a time may send, one receive; any may close.
    """

    def __init__(self, sock: Socket) -> None:
        self._sock = sock
        self.raw = stream_socket.raw_of(sock)
        self._recvmsg_into = getattr(sock, "recvmsg_into", self.raw.recvmsg_into)
        self._peer_segments = PeerSegments(pool)
        self._mapped_segments = MappedSegments(self._is_peer_gone)
        self._fds: list[int] = []  # to go along with the next byte
        self._was_gone = False
        self.is_refused = False  # the other side cannot map what we lend

    # What is shared.

    def wrap(self, buffers: Sequence[memoryview]) -> SharedBuffers | None:
        """A parcel for the other side; None if the buffers have to go through the socket."""
        return None if self.is_refused else wrap(buffers)

    def describe(self, shared: SharedBuffers) -> bytes:
        """The notes of the message with it, which is to be sent next."""
        descriptor, fd = self._peer_segments.describe(shared.lease)
        if fd is not None:
            self._fds.append(fd)
        return headers.encode({SEGMENT: shared.describe(descriptor)})

    def open(self, frame: framing.Fields, max_bytes: int) -> framing.Fields:
        """A frame that has come, with all its buffers.

        Raises ProtocolError for what no courier sends, OSError when the segment cannot be had.
        """
        kind, call_id, method, body, small, timeout_us, descriptor = frame
        if not descriptor:
            return frame
        found = headers.decode(descriptor)
        if (header := found.pop(SEGMENT, None)) is None:
            return frame
        n, rest = divmod(len(header) - DESCRIPTOR_SIZE, 8)
        if n < 0 or rest:
            raise ProtocolError(f"a note of {len(header)} bytes about a segment")
        lengths = struct.unpack_from(f"<{n}Q", header, DESCRIPTOR_SIZE)
        if (size := len(body) + sum(lengths)) > max_bytes:
            raise ProtocolError(f"a message of {size} bytes; the limit is {max_bytes}")
        large = self._mapped_segments.receive(
            header[:DESCRIPTOR_SIZE], [n for n in lengths if n >= LARGE]
        )
        buffers = _merge(lengths, small, large)
        return kind, call_id, method, body, buffers, timeout_us, headers.encode(found)

    # What it is as a socket.

    def send(self, data: framing.Chunk, flags: int = 0) -> int:
        return self.sendmsg([data], (), flags) if self._fds else self._sock.send(data, flags)

    def sendall(self, data: framing.Chunk, flags: int = 0) -> None:
        self._sock.sendall(data, flags)

    def sendmsg(
        self, chunks: Iterable[framing.Chunk], ancillary: Iterable[Any] = (), flags: int = 0
    ) -> int:
        """Sends; and along with it the files of the segments that are described in there."""
        if self._fds:
            files = array.array("i", self._fds)
            ancillary = [*ancillary, (socket.SOL_SOCKET, socket.SCM_RIGHTS, files)]
        n = self._sock.sendmsg(chunks, ancillary, flags)
        self._fds.clear()
        return n

    def recv(self, n: int, flags: int = 0) -> bytes:
        return self._sock.recv(n, flags)

    def recv_into(self, buffer: Any, n: int = 0, flags: int = 0) -> int:
        """Receives; and takes the files that come along."""
        into = (buffer[:n] if n else buffer,)
        n_bytes, ancillary, _, _ = self._recvmsg_into(into, _SPACE, flags | _CLOSE_ON_EXEC)
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                for (fd,) in struct.iter_unpack("@i", data[: len(data) // 4 * 4]):
                    self._mapped_segments.take(fd)
        return int(n_bytes)

    def pending(self) -> bool:
        return stream_socket.has_pending(self._sock)

    def setsockopt(self, level: int, name: int, value: Any) -> None:
        self._sock.setsockopt(level, name, value)

    def settimeout(self, timeout_s: float | None) -> None:
        self._sock.settimeout(timeout_s)

    def shutdown(self, how: int) -> None:
        self._sock.shutdown(how)

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        """Arrays that have come live on. Takes no lock: the garbage collector may call it."""
        self._sock.close()
        self._peer_segments.close()
        self._mapped_segments.close()

    def _is_peer_gone(self) -> bool:
        """A connection that nobody reads from at the moment would not notice otherwise.

        Only when asked for the second time: what came last may be about to be opened.
        """
        try:
            is_gone = not self.raw.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            is_gone = False
        except OSError:
            is_gone = True
        was_gone, self._was_gone = self._was_gone, is_gone
        return is_gone and was_gone


def refusal(frame: framing.Fields) -> list[framing.Chunk]:
    """The answer to a call whose arguments could not be had."""
    return framing.encode(framing.NOT_RUN, frame[1], b"", framing.UNMAPPED)


def _merge(
    lengths: Sequence[int], small: Sequence[framing.Chunk], large: list[memoryview]
) -> framing.SharedChunks:
    if len(large) == len(lengths) and not small:
        return framing.SharedChunks(large)
    if [n for n in lengths if n < LARGE] != [memoryview(each).nbytes for each in small]:
        raise ProtocolError("the buffers of a message are not those in the note about its segment")
    smalls, larges = iter(small), iter(large)
    return framing.SharedChunks(next(larges if n >= LARGE else smalls) for n in lengths)
