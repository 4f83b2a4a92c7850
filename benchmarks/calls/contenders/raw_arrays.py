"""The best that plain Python can do with large arrays on a socket, and what no transport can beat.

A size, then the array's own memory: sent from where it is, received with one `recv_into` of
MSG_WAITALL into memory that is used again for the next. So the answer is not the caller's to keep.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from benchmarks.calls.contenders.contender import Client
from benchmarks.calls.contenders.raw import hurry

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
    Echo = Callable[[Array], Array]

SIZE = struct.Struct("<Q")


class Reused:
    """Memory to receive into; grows, and never shrinks."""

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
    sent = sock.sendmsg([SIZE.pack(data.nbytes), data]) - SIZE.size
    sock.sendall(data[sent:])


def serve_unix(path: str, pipe: Connection) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        answer_one(listener, path, pipe)


def serve_tcp(_: str, pipe: Connection) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answer_one(listener, str(listener.getsockname()[1]), pipe)


def answer_one(listener: socket.socket, address: str, pipe: Connection) -> None:
    listener.listen()
    pipe.send(address)
    sock, _ = listener.accept()
    hurry(sock)
    reused = Reused()
    while (data := reused.receive(sock)) is not None:
        send(sock, data)


@contextmanager
def connect_unix(path: str) -> Iterator[Client]:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)
        yield Client(echo_over(sock))


@contextmanager
def connect_tcp(port: str) -> Iterator[Client]:
    with socket.create_connection(("127.0.0.1", int(port))) as sock:
        hurry(sock)
        yield Client(echo_over(sock))


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
    """There and back by one copy each, into memory that is there already."""
    import numpy as np

    there = np.empty(0, np.float32)
    back = np.empty(0, np.float32)

    def echo(array: Array) -> Array:
        nonlocal there, back
        if len(there) < len(array):
            there = np.zeros_like(array)
            back = np.zeros_like(array)
        np.copyto(there[: len(array)], array)
        np.copyto(back[: len(array)], there[: len(array)])
        return back[: len(array)]

    yield Client(echo)
