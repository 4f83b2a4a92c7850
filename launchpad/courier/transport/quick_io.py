"""Sends and receives that never block, and that hold the GIL.

If a thread releases the GIL for a system call of a few microseconds, another thread that wants to compute may
take it. The first thread gets the GIL back when the other one waits, or after 5 ms.
"""

from __future__ import annotations

import socket
from typing import Any

from launchpad.courier.protocol.framing import Chunk
from launchpad.courier.transport.spin_wait import find_library
from launchpad.courier.transport.stream_socket import DONTWAIT, SEND_NOW, Socket

_MOST = 64 << 10  # bytes; copying more takes so long that other threads should compute during it


class QuickIO:
    """Quick sends and receives on one socket, by one thread at a time in each direction.

    If the socket isn't a plain `socket.socket`, `try_send` does nothing, and `receive` calls the socket's own
    method.

    Example:
        io = QuickIO(sock)
        io.try_send(data, counts)       # then sock.send the rest: it may wait, and raises errors
        n = io.receive(buffer)          # raises BlockingIOError if nothing is there
    """

    def __init__(self, sock: Socket) -> None:
        self._sock = sock
        library = find_library(keeps_interpreter=True) if type(sock) is socket.socket else None
        self._system_send: Any = getattr(library, "send", None)
        self._system_receive: Any = getattr(library, "recv", None)
        self._buffer: memoryview | None = None
        self._place: Any = None  # the same buffer, as an argument of the system's function

    def try_send(self, data: Chunk, counts: list[int]) -> None:
        """Send as many bytes as the system takes now. Append their number to `counts`, or -1 for an error.

        An interruption can't separate the two steps. Data that is too long, or not `bytes`, is not sent.
        """
        if self._system_send is not None and type(data) is bytes and len(data) <= _MOST:
            arguments = (self._sock.fileno(),), (data,), (len(data),), (SEND_NOW,)
            counts.extend(map(self._system_send, *arguments))

    def receive(self, buffer: memoryview) -> int:
        """Receive what is there now, as `sock.recv_into` does with MSG_DONTWAIT."""
        if self._system_receive is not None:
            if buffer is not self._buffer:
                import ctypes

                self._place = ctypes.byref(ctypes.c_char.from_buffer(buffer))
                self._buffer = buffer
            size = min(len(buffer), _MOST)
            n: int = self._system_receive(self._sock.fileno(), self._place, size, DONTWAIT)
            if n >= 0:
                return n
        return self._sock.recv_into(buffer, 0, DONTWAIT)
