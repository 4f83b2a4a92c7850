"""The best that plain Python can do for one call at a time, on a unix socket and on TCP.

Each message is a length and a pickle, with one send and one receive on either side. The server has a
thread for each connection. There are no method names, no errors and no selector.
"""

from __future__ import annotations

import pickle
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.calls.contenders.contender import PROTOCOL, Call, Client, Contender

LENGTH = struct.Struct("<Q")
BUFFER = 1 << 20  # the largest message

Answer = Callable[[socket.socket], None]
Caller = Callable[[socket.socket], Call]


def serve_unix(path: str, pipe: Connection, answer: Answer | None = None) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    serve(listener, path, pipe, answer or answer_pickles)


def serve_tcp(_: str, pipe: Connection, answer: Answer | None = None) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    serve(listener, str(listener.getsockname()[1]), pipe, answer or answer_pickles)


def serve(listener: socket.socket, address: str, pipe: Connection, answer: Answer) -> None:
    listener.listen()
    pipe.send(address)
    while True:
        sock, _ = listener.accept()
        hurry(sock)
        threading.Thread(target=answer, args=(sock,), daemon=True).start()


def answer_pickles(sock: socket.socket) -> None:
    buffer = bytearray(BUFFER)
    while n := receive(sock, buffer):
        body = pickle.dumps(pickle.loads(memoryview(buffer)[8:n]), PROTOCOL)
        sock.sendall(LENGTH.pack(len(body)) + body)


def receive(sock: socket.socket, buffer: bytearray) -> int:
    n = sock.recv_into(buffer)
    if n >= 8:
        (length,) = LENGTH.unpack_from(buffer)
        while n < 8 + length:
            n += sock.recv_into(memoryview(buffer)[n:])
    return n


@contextmanager
def connect_unix(path: str, caller: Caller | None = None) -> Iterator[Client]:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)
        yield Client((caller or call_by_pickles)(sock))


@contextmanager
def connect_tcp(port: str, caller: Caller | None = None) -> Iterator[Client]:
    with socket.create_connection(("127.0.0.1", int(port))) as sock:
        hurry(sock)
        yield Client((caller or call_by_pickles)(sock))


@contextmanager
def connect_locked(path: str) -> Iterator[Client]:
    """Give a client whose threads share one connection, protected by a lock."""
    lock = threading.Lock()
    with connect_unix(path) as alone:

        def call(value: Any) -> Any:
            with lock:
                return alone.call(value)

        yield Client(call)


def call_by_pickles(sock: socket.socket) -> Call:
    buffer = bytearray(BUFFER)

    def call(value: Any) -> Any:
        body = pickle.dumps(value, PROTOCOL)
        sock.sendall(LENGTH.pack(len(body)) + body)
        n = receive(sock, buffer)
        return pickle.loads(memoryview(buffer)[8:n])

    return call


def hurry(sock: socket.socket) -> None:
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


UNIX = Contender("raw unix", serve_unix, connect_unix)
TCP = Contender("raw tcp", serve_tcp, connect_tcp)
LOCKED = Contender("raw locked", serve_unix, connect_locked)
