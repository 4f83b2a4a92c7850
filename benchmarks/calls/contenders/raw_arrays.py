"""The best that plain Python can do with large arrays on a socket, and memcpy, which no transport can beat.

Each message is a size and the array's memory. It is sent without a copy, and received with one `recv_into`
of MSG_WAITALL into memory that is used again for the next array. So the caller must not keep the answer.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.calls.contenders import raw
from benchmarks.calls.contenders.contender import Client, Contender, serve_nothing

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
    Echo = Callable[[Array], Array]

SIZE = struct.Struct("<Q")


class Reused:
    """Memory to receive into, which grows and never shrinks."""

    def __init__(self) -> None:
        self._memory = bytearray()

    def receive(self, sock: socket.socket) -> memoryview | None:
        head = sock.recv(SIZE.size, socket.MSG_WAITALL)
        if not head:
            return None
        (size,) = SIZE.unpack(head)
        if size > len(self._memory):
            self._memory = bytearray(size)
        view = memoryview(self._memory)[:size]
        at = 0
        while at < size:
            at += sock.recv_into(view[at:], 0, socket.MSG_WAITALL)
        return view


def send(sock: socket.socket, data: memoryview) -> None:
    n_sent = sock.sendmsg([SIZE.pack(data.nbytes), data]) - SIZE.size
    sock.sendall(data[n_sent:])


def answer(sock: socket.socket) -> None:
    reused = Reused()
    while (data := reused.receive(sock)) is not None:
        send(sock, data)


def echo_over(sock: socket.socket) -> Echo:
    import numpy as np

    reused = Reused()

    def echo(array: Array) -> Array:
        send(sock, array.data.cast("B"))
        view = reused.receive(sock)
        assert view is not None
        return np.frombuffer(view, array.dtype)

    return echo


@contextmanager
def connect_memcpy(_: str) -> Iterator[Client]:
    """Give a client that copies the array twice, each time into memory that it already has."""
    import numpy as np

    at_server = np.empty(0, np.float32)
    reply = np.empty(0, np.float32)

    def echo(array: Array) -> Array:
        nonlocal at_server, reply
        if len(at_server) < len(array):
            at_server = np.zeros_like(array)
            reply = np.zeros_like(array)
        np.copyto(at_server[: len(array)], array)
        np.copyto(reply[: len(array)], at_server[: len(array)])
        return reply[: len(array)]

    yield Client(echo)


MEMCPY = Contender("memcpy", serve_nothing, connect_memcpy)
UNIX = Contender(
    "raw unix", partial(raw.serve_unix, answer=answer), partial(raw.connect_unix, caller=echo_over)
)
TCP = Contender(
    "raw tcp", partial(raw.serve_tcp, answer=answer), partial(raw.connect_tcp, caller=echo_over)
)
