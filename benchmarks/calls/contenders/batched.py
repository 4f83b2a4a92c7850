"""The best that plain Python can do for many calls at a time with futures: the bar for pipelining.

A unix socket; length and id before each pickle. `submit` gives a plain `concurrent.futures.Future`
and may be called by any thread. Frames wait in a queue until there are many or the writer thread
gets to them, and leave in one send; a reader thread sets the futures. The server has one thread and
sends the answers to all that one receive brought in one send. No method names, no errors, no
cancelling, no deadlines.
"""

from __future__ import annotations

import itertools
import pickle
import queue
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.calls.contenders import PROTOCOL
from benchmarks.calls.contenders.timing import CallAll, all_at_once

HEADER = struct.Struct("<IQ")
BUFFER = 1 << 20
BATCH = 256  # frames that whoever submits the last of them sends itself


def serve(path: str, pipe: Connection) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        pipe.send(path)
        sock, _ = listener.accept()

    for frames in received(sock):
        out = []
        for call_id, body in frames:
            answer = pickle.dumps(pickle.loads(body), PROTOCOL)
            out.append(HEADER.pack(len(answer), call_id) + answer)
        sock.sendall(b"".join(out))


def received(sock: socket.socket) -> Iterator[Iterator[tuple[int, memoryview]]]:
    """What each receive brought: ids and bodies, until the connection ends."""
    buffer = bytearray(BUFFER)
    view = memoryview(buffer)
    have = 0

    def frames() -> Iterator[tuple[int, memoryview]]:
        nonlocal have
        unpack, size, at = HEADER.unpack_from, HEADER.size, 0
        while have - at >= size:
            length, call_id = unpack(buffer, at)
            end = at + size + length
            if end > have:
                break
            yield call_id, view[at + size : end]
            at = end
        buffer[: have - at] = buffer[at:have]
        have -= at

    while n := sock.recv_into(view[have:]):
        have += n
        yield frames()


class BatchedClient:
    """Calls with futures."""

    def __init__(self, path: str) -> None:
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.connect(path)
        self._ids = itertools.count()
        self._futures: dict[int, Future[Any]] = {}
        self._frames: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._writing = threading.Lock()
        for main in (self._write, self._read):
            threading.Thread(target=main, daemon=True).start()

    def submit(self, value: Any) -> Future[Any]:
        body = pickle.dumps(value, PROTOCOL)
        call_id = next(self._ids)
        future = self._futures[call_id] = Future()
        self._frames.put(HEADER.pack(len(body), call_id) + body)
        if self._frames.qsize() >= BATCH and self._writing.acquire(blocking=False):
            try:
                self._sock.sendall(b"".join(self._waiting()))
            finally:
                self._writing.release()
        return future

    def _waiting(self) -> Iterator[bytes]:
        get = self._frames.get_nowait
        try:
            while True:
                yield get()
        except queue.Empty:
            return

    def _write(self) -> None:
        while True:
            first = self._frames.get()
            with self._writing:
                self._sock.sendall(first + b"".join(self._waiting()))

    def _read(self) -> None:
        take, loads = self._futures.pop, pickle.loads
        for frames in received(self._sock):
            for call_id, body in frames:
                take(call_id).set_result(loads(body))


@contextmanager
def connect(path: str) -> Iterator[Callable[[Any], Any]]:
    client = BatchedClient(path)
    yield lambda value: client.submit(value).result()


@contextmanager
def connect_all_at_once(path: str) -> Iterator[CallAll]:
    yield all_at_once(BatchedClient(path).submit)
