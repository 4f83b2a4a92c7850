"""Sends and receives what the system takes or has at once, and keeps the interpreter meanwhile.

A thread that lets go of the interpreter for a system call of a few microseconds finds, where another
thread wants to compute, that this one has it: it gets it back when that one waits, or after 5 ms.
"""

from __future__ import annotations

import socket
from typing import Any

from launchpad.courier.protocol.framing import Chunk
from launchpad.courier.transport.spin_wait import find_library
from launchpad.courier.transport.stream_socket import DONTWAIT, SEND_NOW, Socket

_MOST = 64 << 10  # bytes; more take so long that other threads should compute meanwhile


class QuickIO:
    """The one socket, for one thread at a time in each direction. What is no plain socket waits as ever.

    Example:
        io = QuickIO(sock)
        io.try_send(data, sent)         # the rest is for sock.send, which may wait, or says what is wrong
        n = io.receive(buffer)          # BlockingIOError if nothing is there
    """

    def __init__(self, sock: Socket) -> None:
        self._sock = sock
        library = find_library(keeps_interpreter=True) if type(sock) is socket.socket else None
        self._system_send: Any = getattr(library, "send", None)
        self._system_receive: Any = getattr(library, "recv", None)
        self._buffer: memoryview | None = None
        self._place: Any = None  # the same, as the system takes it

    def try_send(self, data: Chunk, sent: list[int]) -> None:
        """Sends, and adds to `sent` how many bytes the system has taken, in one step; -1 for an error."""
        if self._system_send is not None and type(data) is bytes and len(data) <= _MOST:
            arguments = (self._sock.fileno(),), (data,), (len(data),), (SEND_NOW,)
            sent.extend(map(self._system_send, *arguments))

    def receive(self, buffer: memoryview) -> int:
        """As `sock.recv_into` that does not wait."""
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
