"""A network between clients and a server, for tests of what it may lose."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any


class Relay:
    """Passes bytes on between those who connect to `listener` and what `connect` gives.

    Descriptors get lost, and the last `keeps_back` bytes of whatever the server says at once.
    """

    def __init__(self, listener: socket.socket, connect: Callable[[], socket.socket]) -> None:
        self.keeps_back = 0
        self._listener = listener
        self._connect = connect
        self._sockets = [listener]
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def close(self) -> None:
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for sock in self._sockets:
            sock.close()

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        self._threads.append(threading.Thread(target=target, args=args))
        self._threads[-1].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = self._connect()
                self._sockets += [client, server]
                self._start(self._pass_on, client, server, lambda: 0)
                self._start(self._pass_on, server, client, lambda: self.keeps_back)

    def _pass_on(
        self, source: socket.socket, sink: socket.socket, keeps_back: Callable[[], int]
    ) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 20):
                sink.sendall(data[: len(data) - keeps_back()])
            sink.shutdown(socket.SHUT_WR)
