"""asyncio's protocols on uvloop's event loop, on a unix socket: callbacks and no streams.

Client and server join all frames of one turn of the loop into one write. Length and id come before each
pickle, as in `batched.py`. The futures are asyncio's, so everything happens in one thread.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.calls.contenders.batched import BATCH, HEADER
from benchmarks.calls.contenders.contender import PROTOCOL, Client, Contender, by_coroutines


class Framed(asyncio.Protocol):
    """A protocol that cuts the received bytes into frames."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._rest = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def frames(self, data: bytes) -> Iterator[tuple[int, memoryview]]:
        data = self._rest + data if self._rest else data
        view = memoryview(data)
        at = 0
        have = len(data)
        while have - at >= HEADER.size:
            length, call_id = HEADER.unpack_from(data, at)
            end = at + HEADER.size + length
            if end > have:
                break
            yield call_id, view[at + HEADER.size : end]
            at = end
        self._rest = data[at:]


class Echo(Framed):
    def data_received(self, data: bytes) -> None:
        out = []
        for call_id, body in self.frames(data):
            answer = pickle.dumps(pickle.loads(body), PROTOCOL)
            out.append(HEADER.pack(len(answer), call_id) + answer)
        self.transport.write(b"".join(out))


class Caller(Framed):
    """A client whose calls return asyncio futures."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._futures: dict[int, asyncio.Future[Any]] = {}
        self._frames: list[bytes] = []
        self._last_id = 0

    def call(self, value: Any) -> asyncio.Future[Any]:
        body = pickle.dumps(value, PROTOCOL)
        call_id = self._last_id = self._last_id + 1
        future = self._futures[call_id] = self._loop.create_future()
        self._frames.append(HEADER.pack(len(body), call_id) + body)
        if len(self._frames) == 1:
            self._loop.call_soon(self._flush)
        elif len(self._frames) >= BATCH:
            self._flush()
        return future

    def call_alone(self, value: Any) -> asyncio.Future[Any]:
        """Send a call at once, for coroutines that make one call at a time."""
        future = self.call(value)
        self._flush()
        return future

    def _flush(self) -> None:
        frames = self._frames
        self._frames = []
        if frames:
            self.transport.write(b"".join(frames))

    def data_received(self, data: bytes) -> None:
        for call_id, body in self.frames(data):
            self._futures.pop(call_id).set_result(pickle.loads(body))


def serve(path: str, pipe: Connection) -> None:
    import uvloop

    async def main() -> None:
        server = await asyncio.get_running_loop().create_unix_server(Echo, path)
        pipe.send(path)
        await server.serve_forever()

    uvloop.run(main())


@contextmanager
def connect(path: str) -> Iterator[Client]:
    import uvloop

    loop = uvloop.new_event_loop()
    _, caller = loop.run_until_complete(loop.create_unix_connection(Caller, path))

    async def time_calls(seconds: float) -> list[float]:
        now = time.perf_counter
        times = []
        end = now() + seconds
        while (began := now()) < end:
            await caller.call_alone(7)
            times.append(now() - began)
        return times

    async def call_all(n: int) -> Any:
        futures = [caller.call(i) for i in range(n)]
        for i, future in enumerate(futures):
            assert await future == i
        return futures

    # For a process that makes one call at a time: a plain socket, and no event loop.
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)
        buffer = bytearray(65536)
        view = memoryview(buffer)

        def call(value: Any) -> Any:
            body = pickle.dumps(value, PROTOCOL)
            sock.sendall(HEADER.pack(len(body), 0) + body)
            n = sock.recv_into(buffer)
            while n < HEADER.size or n < HEADER.size + HEADER.unpack_from(buffer)[0]:
                n += sock.recv_into(view[n:])
            return pickle.loads(view[HEADER.size : n])

        yield Client(
            call,
            call_all=lambda n: loop.run_until_complete(call_all(n)),
            await_all=lambda n: loop.run_until_complete(by_coroutines(caller.call, n)),
            time_calls=lambda seconds: loop.run_until_complete(time_calls(seconds)),
        )


UVLOOP = Contender("uvloop", serve, connect, "uvloop")
