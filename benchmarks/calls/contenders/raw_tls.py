"""The best that plain Python can do with large arrays on a TLS socket of the `ssl` module.

Each message is the number of bytes that follow, and the number of bytes that are wanted as the answer. Bytes
are sent with one `sendall`, and received into memory that is used again for the next array.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from benchmarks.calls.contenders import ours, raw
from benchmarks.calls.contenders.contender import Client, Contender

if TYPE_CHECKING:
    import ssl

HEAD = struct.Struct("<QQ")


class Reused:
    """Memory that grows and never shrinks."""

    def __init__(self) -> None:
        self._memory = bytearray()

    def view(self, size: int) -> memoryview:
        if size > len(self._memory):
            self._memory = bytearray(size)
        return memoryview(self._memory)[:size]


def receive(sock: ssl.SSLSocket, view: memoryview) -> bool:
    """Fill the view. Return False if the stream ends before."""
    at = 0
    while at < len(view):
        n = sock.recv_into(view[at:])
        if not n:
            return False
        at += n
    return True


def serve(_: str, pipe: Connection) -> None:
    from launchpad.courier.security.certificates import make_credentials
    from launchpad.courier.transport import tls_context

    credentials = make_credentials()
    context = tls_context.make(credentials, is_server=True)
    listener = socket.create_server(("127.0.0.1", 0))
    pipe.send(ours.Place(str(listener.getsockname()[1]), credentials=credentials))
    while True:
        sock, _ = listener.accept()
        raw.hurry(sock)
        tls = context.wrap_socket(sock, server_side=True)
        threading.Thread(target=answer, args=(tls,), daemon=True).start()


def answer(sock: ssl.SSLSocket) -> None:
    head = memoryview(bytearray(HEAD.size))
    reused = Reused()
    while receive(sock, head):
        size, wanted = HEAD.unpack(head)
        receive(sock, reused.view(size))
        sock.sendall(reused.view(wanted))


@contextmanager
def connect(place: ours.Place) -> Iterator[Client]:
    """Give a client that sends an array and gets one byte, or sends a size and gets so many bytes."""
    from launchpad.courier.transport import tls_context

    context = tls_context.make(place.credentials, is_server=False)
    with socket.create_connection(("127.0.0.1", int(place.address))) as plain:
        raw.hurry(plain)
        sock = context.wrap_socket(plain)
        reused = Reused()

        def call(value: Any) -> Any:
            if isinstance(value, int):
                sock.sendall(HEAD.pack(0, value))
                view = reused.view(value)
                receive(sock, view)
                return view
            sock.sendall(HEAD.pack(value.nbytes, 1))
            sock.sendall(value.data.cast("B"))
            receive(sock, reused.view(1))
            return value.nbytes

        yield Client(call)


ARRAYS = Contender("raw tls", serve, connect)
