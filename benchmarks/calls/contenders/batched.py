"""The best that plain Python can do for many calls at a time with futures: the bar for pipelining.

It uses a unix socket, with length and id before each pickle. `submit` returns a plain
`concurrent.futures.Future`, and any thread may call it. Frames wait in a queue until there are many
of them or the writer thread gets to them. Then one send sends them all. A reader thread sets the
futures. The server has one thread, and one send with the answers to all frames of one receive. There
are no method names, no errors, no cancelling and no deadlines.
"""

from __future__ import annotations

import contextlib
import itertools
import pickle
import queue
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.calls.contenders.contender import PROTOCOL, Client, Contender

HEADER = struct.Struct("<IQ")
pack = HEADER.pack
unpack_from = HEADER.unpack_from
HEADER_SIZE = HEADER.size
dumps = pickle.dumps
loads = pickle.loads
BUFFER = 1 << 20
BATCH = 256  # frames: the thread that submits the last of them sends all of them itself


def serve(path: str, pipe: Connection) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        pipe.send(path)
        sock, _ = listener.accept()

    for values in received(sock):
        out = []
        for call_id, value in values:
            body = dumps(value, PROTOCOL)
            out.append(pack(len(body), call_id) + body)
        sock.sendall(b"".join(out))


def received(sock: socket.socket) -> Iterator[list[tuple[int, Any]]]:
    """Yield the ids and values of each receive, until the connection ends."""
    buffer = bytearray(BUFFER)
    view = memoryview(buffer)
    have = 0
    while n := sock.recv_into(view[have:]):
        have += n
        values = []
        at = 0
        while have - at >= HEADER_SIZE:
            length, call_id = unpack_from(buffer, at)
            begin = at + HEADER_SIZE
            if begin + length > have:
                break
            at = begin + length
            values.append((call_id, loads(view[begin:at])))
        yield values
        buffer[: have - at] = buffer[at:have]
        have -= at


class BatchedClient:
    """A client whose calls return futures."""

    def __init__(self, path: str) -> None:
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.connect(path)
        self._next_id = itertools.count().__next__
        self._futures: dict[int, Future[Any]] = {}
        self._frames: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._put = self._frames.put
        self._size = self._frames.qsize
        # The writer thread and a thread that submits may both send: their frames must not interleave.
        self._writing = threading.Lock()
        for main in (self._write, self._read):
            threading.Thread(target=main, daemon=True).start()

    def submit(self, value: Any) -> Future[Any]:
        body = dumps(value, PROTOCOL)
        call_id = self._next_id()
        future = self._futures[call_id] = Future()
        self._put(pack(len(body), call_id) + body)
        if self._size() >= BATCH and self._writing.acquire(blocking=False):
            try:
                self._sock.sendall(b"".join(self._waiting()))
            finally:
                self._writing.release()
        return future

    def _waiting(self) -> list[bytes]:
        get = self._frames.get_nowait
        frames = []
        with contextlib.suppress(queue.Empty):  # the writer may take one in between
            for _ in range(self._size()):
                frames.append(get())
        return frames

    def _write(self) -> None:
        while True:
            first = self._frames.get()
            with self._writing:
                self._sock.sendall(first + b"".join(self._waiting()))

    def _read(self) -> None:
        take = self._futures.pop
        for values in received(self._sock):
            for call_id, value in values:
                take(call_id).set_result(value)


@contextmanager
def connect(path: str) -> Iterator[Client]:
    client = BatchedClient(path)
    yield Client(lambda value: client.submit(value).result(), client.submit)


RAW_BATCHED = Contender("raw batched", serve, connect)
