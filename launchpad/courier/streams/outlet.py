"""Bytes on their way out of a connection that several threads write to, none of which shall wait.

The socket's own buffer may be full. Then what is left stays here, and `wait_for_room` or a selector
tells when to go on. So a thread that has others things to do, to read above all, never hangs in a write.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections import deque
from collections.abc import Sequence

from launchpad.courier.carriers.sockets import MAX_GATHER, NO_SIGNAL, Socket, skip_sent
from launchpad.courier.protocol.wire import Chunk

_DONT_WAIT = NO_SIGNAL | getattr(socket, "MSG_DONTWAIT", 0)
_JOIN_UP_TO = 64 << 10  # together; from there on a copy costs more than a longer gather list


class Outlet:
    """The writing side of one connection, for the time of one call.

    Example:
        outlet.put(wire.encode(wire.ITEM, 0, b"", body, views))
        while not outlet.flush():
            outlet.wait_for_room(1.0)

    Safe from any thread. After `close` nothing is written any more, and `put` is ignored.
    """

    def __init__(self, sock: Socket) -> None:
        self.sock = sock
        self._queue: deque[Chunk] = deque()
        self._rest: list[memoryview] = []
        self._lock = threading.Lock()  # who holds it writes
        self._is_closed = False

    def put(self, chunks: Sequence[Chunk]) -> None:
        """Adds the chunks of one frame; no other comes between them."""
        if not self._is_closed:
            self._queue.extend(chunks)  # one step, whatever other threads do

    def flush(self) -> bool:
        """Writes what the socket takes; True when all that was put before has been written.

        Raises OSError when the connection has ended.
        """
        with self._lock:
            try:
                while self._rest or self._queue:
                    self._write()
                return True
            except BlockingIOError:
                return False

    def wait_for_room(self, timeout_s: float) -> bool:
        """Waits until the socket takes more or the connection has ended; False if neither came."""
        with contextlib.suppress(OSError, ValueError):  # closed meanwhile: `flush` will know
            poller = select.poll()
            poller.register(self.sock, select.POLLOUT)
            return bool(poller.poll(timeout_s * 1000))
        return True

    def close(self) -> bool:
        """Writes no more, and drops what is left; True when nothing was."""
        with self._lock:
            is_clean = not self._queue and not self._rest
            self._is_closed = True
            self._queue.clear()
            self._rest.clear()
            return is_clean

    def _write(self) -> None:
        if not self._rest:
            self._rest = self._load()
        skip_sent(self._rest, self.sock.sendmsg(self._rest[:MAX_GATHER], (), _DONT_WAIT))

    def _load(self) -> list[memoryview]:
        chunks: list[Chunk] = []
        size = 0
        while self._queue and len(chunks) < MAX_GATHER:
            chunks.append(self._queue.popleft())
            size += len(chunks[-1])
        if size <= _JOIN_UP_TO and len(chunks) > 1:
            chunks = [b"".join(chunks)]
        return [memoryview(chunk) for chunk in chunks if len(chunk)]
