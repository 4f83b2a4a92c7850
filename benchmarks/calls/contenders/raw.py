"""The best that plain Python can do for one call at a time, on a unix socket and on TCP.

A length before each pickle, one send and one receive on either side; no method names, no errors, no
selector. A thread for each connection, and a connection for each thread that calls.
"""

from __future__ import annotations

import pickle
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.calls.contenders import PROTOCOL
from benchmarks.calls.contenders.timing import TimeCalls, one_by_one

Call = Callable[[Any], Any]
LENGTH = struct.Struct("<Q")
BUFFER = 1 << 20  # the largest message


def serve_unix(path: str, pipe: Connection) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    serve(listener, path, pipe)


def serve_tcp(_: str, pipe: Connection) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    serve(listener, str(listener.getsockname()[1]), pipe)


def serve(listener: socket.socket, address: str, pipe: Connection) -> None:
    listener.listen()
    pipe.send(address)
    while True:
        sock, _ = listener.accept()
        hurry(sock)
        threading.Thread(target=answer, args=(sock,), daemon=True).start()


def answer(sock: socket.socket) -> None:
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
def connect_unix(path: str) -> Iterator[Call]:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)
        yield caller(sock)


@contextmanager
def connect_one_by_one(path: str) -> Iterator[TimeCalls]:
    with connect_unix(path) as call:
        yield one_by_one(call)


@contextmanager
def connect_tcp_one_by_one(port: str) -> Iterator[TimeCalls]:
    with socket.create_connection(("127.0.0.1", int(port))) as sock:
        hurry(sock)
        yield one_by_one(caller(sock))


@contextmanager
def connect_each_thread(path: str) -> Iterator[Call]:
    """A call that gives every thread a connection of its own."""
    with ExitStack() as stack:
        own = threading.local()

        def call(value: Any) -> Any:
            if not hasattr(own, "call"):
                own.call = stack.enter_context(connect_unix(path))
            return own.call(value)

        yield call


@contextmanager
def connect_locked(path: str) -> Iterator[Call]:
    """A call on the one connection of all threads, which a lock gives to one at a time."""
    lock = threading.Lock()
    with connect_unix(path) as call_alone:

        def call(value: Any) -> Any:
            with lock:
                return call_alone(value)

        yield call


def caller(sock: socket.socket) -> Call:
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
