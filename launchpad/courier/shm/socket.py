"""A socket between processes of one host, whose large buffers go through shared memory (segments.py).

    frame:      header SEGMENT ── descriptor (24 bytes) · the length of each buffer (8 bytes each)
                buffers smaller than LARGE
    segment:    the other buffers, in their order

The file of a segment that the other side has not seen yet is sent along with the first byte of the frame,
and mapped as soon as it arrives. If buffers can't be shared, for whatever reason, they go through the socket,
in a message without the header.
"""

from __future__ import annotations

import array
import os
import socket
import struct
from collections.abc import Iterable, Sequence
from itertools import starmap
from typing import Any

from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol import framing
from launchpad.courier.protocol.framing import SEGMENT
from launchpad.courier.shm import segments
from launchpad.courier.shm.receiver import MappedSegments
from launchpad.courier.shm.segments import DESCRIPTOR_SIZE, LARGE
from launchpad.courier.shm.sender import PeerSegments, SharedBuffers, pool
from launchpad.courier.transport.stream_socket import Socket, SocketWrapper

WINDOW_S = 300e-6  # how long to spin for an answer: about the time that megabytes take
_MAX_FILES = 16  # the most files that arrive with one read
_LENGTH = struct.Struct("<Q")
# The headers of a message with one buffer: tag, length, descriptor, the length of the buffer.
_ONE = struct.Struct("<BHQQQQ")
_ONE_SIZE = _ONE.size
_ONE_LENGTH = DESCRIPTOR_SIZE + 8
_ONE_START = struct.pack("<BH", SEGMENT, _ONE_LENGTH)
_SPACE = socket.CMSG_SPACE(_MAX_FILES * 4)
_CLOSE_ON_EXEC = int(getattr(socket, "MSG_CMSG_CLOEXEC", 0))


class ShmSocket(SocketWrapper):
    """A connection whose ends share memory.

    Example:
        sock = ShmSocket(sock)
        shared = sock.wrap(buffers)
        if shared is not None:
            sock.sendmsg(framing.encode(…, shared.small, 0, sock.describe(shared)))
            shared.release()

    One thread at a time may send, and one may receive. Any thread may close the connection.
    """

    def __init__(self, sock: Socket) -> None:
        super().__init__(sock)
        self._recvmsg_into = getattr(sock, "recvmsg_into", self.raw.recvmsg_into)
        self._peer_segments = PeerSegments(pool)
        self._mapped_segments = MappedSegments(self._is_peer_gone)
        self._fds: list[int] = []  # files to send with the next byte
        self._was_gone = False
        self.is_refused = False  # the other side cannot map our segments

    # The methods for shared buffers.

    def wrap(self, buffers: Sequence[memoryview]) -> SharedBuffers | None:
        """Store the buffers for sharing; return None if they must be sent as they are.

        That is the case if sharing isn't worthwhile, if the other side refuses it, or if there is no room.
        """
        if self.is_refused or not segments.is_worthwhile(buffers):
            return None
        return SharedBuffers.store(buffers)

    def describe(self, shared: SharedBuffers) -> bytes:
        """Return the headers of the message with these buffers, which must be sent next."""
        descriptor, fd = self._peer_segments.describe(shared.lease)
        if fd is not None:
            self._fds.append(fd)
        lengths = shared.lengths
        if len(lengths) == 1:
            return _ONE_START + descriptor + _LENGTH.pack(lengths[0])
        header = descriptor + struct.pack(f"<{len(lengths)}Q", *lengths)
        return framing.encode_headers({SEGMENT: header})

    def open(self, frame: framing.Fields, max_bytes: int) -> framing.Fields:
        """Return a received frame with all its buffers.

        Raises ProtocolError for a message that no courier sends, and OSError if its segment is missing.
        """
        kind, call_id, method, body, small, timeout_us, descriptor = frame
        if not descriptor:
            return frame
        if len(descriptor) == _ONE_SIZE and not small:
            tag, size, number, serial, flag, n = _ONE.unpack(descriptor)
            is_usual = tag == SEGMENT and size == _ONE_LENGTH and flag <= 1 and n >= LARGE
            if is_usual and len(body) + n <= max_bytes:
                only = self._mapped_segments.open(number, serial, bool(flag), (n,))
                shared = framing.SharedChunks(only)
                return kind, call_id, method, body, shared, timeout_us, b""
        headers = framing.decode_headers(descriptor)
        header = headers.pop(SEGMENT, None)
        if header is None:
            return frame
        n, remainder = divmod(len(header) - DESCRIPTOR_SIZE, 8)
        if n < 0 or remainder:
            raise ProtocolError(f"a header of {len(header)} bytes about a segment")
        lengths = struct.unpack_from(f"<{n}Q", header, DESCRIPTOR_SIZE)
        size = len(body) + sum(lengths)
        if size > max_bytes:
            raise ProtocolError(f"a message of {size} bytes; the limit is {max_bytes}")
        large = self._mapped_segments.receive(
            header[:DESCRIPTOR_SIZE], [n for n in lengths if n >= LARGE]
        )
        if [n for n in lengths if n < LARGE] != [memoryview(buffer).nbytes for buffer in small]:
            raise ProtocolError(
                "the buffers of a message are not those in the header about its segment"
            )
        smalls = iter(small)
        larges = iter(large)
        buffers = framing.SharedChunks(next(larges if n >= LARGE else smalls) for n in lengths)
        return kind, call_id, method, body, buffers, timeout_us, framing.encode_headers(headers)

    def open_alone(
        self, decoder: framing.FrameDecoder, max_bytes: int, n: int
    ) -> framing.Fields | None:
        """Do what `decoder.received_alone(n)` does, with all buffers. Return None if a segment is missing."""
        frame = decoder.received_alone(n)
        if frame is None or not frame[6]:
            return frame
        try:
            return self.open(frame, max_bytes)
        except (OSError, ProtocolError):
            return None  # `received` raises it again

    # The methods of a socket.

    def send(self, data: framing.Chunk, flags: int = 0) -> int:
        return self.sendmsg([data], (), flags) if self._fds else self._sock.send(data, flags)

    def sendmsg(
        self, chunks: Iterable[framing.Chunk], ancillary: Iterable[Any] = (), flags: int = 0
    ) -> int:
        """Send the chunks, and along with them the files of segments that they describe."""
        if self._fds:
            files = array.array("i", self._fds)
            ancillary = [*ancillary, (socket.SOL_SOCKET, socket.SCM_RIGHTS, files)]
        n = self._sock.sendmsg(chunks, ancillary, flags)
        self._fds.clear()
        return n

    def recv_into(self, buffer: Any, n: int = 0, flags: int = 0) -> int:
        """Receive bytes, and map the segments whose files come along."""
        into = (buffer[:n] if n else buffer,)
        received: list[Any] = []
        fds: list[int] = []
        try:
            # This is one call into C, so that an interruption can't lose the descriptors (interruptions.py).
            received.extend(starmap(self._recvmsg_into, ((into, _SPACE, flags | _CLOSE_ON_EXEC),)))
            n_bytes, ancillary, _, _ = received[0]
            if ancillary:
                fds.extend(_descriptors_in(ancillary))
                received.clear()
                while fds:
                    self._mapped_segments.take(fds.pop(0))
        except BaseException:
            # Nothing else knows of the descriptors that have arrived.
            if not fds and received:
                fds = _descriptors_in(received[0][1])
            for fd in fds:
                os.close(fd)
            raise
        return int(n_bytes)

    def close(self) -> None:
        """Close the connection. Received arrays stay valid.

        Takes no lock: the garbage collector may call it.
        """
        self._sock.close()
        self._peer_segments.close()
        self._mapped_segments.close()

    def _is_peer_gone(self) -> bool:
        """Return True if the peer has closed the connection. If no thread reads, no other code notices that.

        True only if two calls in a row find this, because the last message may be about to be opened.
        """
        try:
            is_gone = not self.raw.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            is_gone = False
        except OSError:
            is_gone = True
        was_gone = self._was_gone
        self._was_gone = is_gone
        return is_gone and was_gone


def _descriptors_in(ancillary: Iterable[tuple[int, int, bytes]]) -> list[int]:
    """Return the descriptors that came along with a read."""
    fds: list[int] = []
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds += [fd for (fd,) in struct.iter_unpack("@i", data[: len(data) // 4 * 4])]
    return fds


def refusal(frame: framing.Fields) -> list[framing.Chunk]:
    """Return the answer to a call whose arguments are in a segment that could not be mapped."""
    return framing.encode(framing.NOT_RUN, frame[1], b"", framing.UNMAPPED)
