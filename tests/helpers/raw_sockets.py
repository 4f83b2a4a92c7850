"""Sockets that stand in for one end of a connection, and do what courier's own would not."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

from launchpad.courier.caller import Peer
from launchpad.courier.protocol import framing, handshake


@contextlib.contextmanager
def listening(address: str, answer: Callable[[socket.socket], None]) -> Iterator[None]:
    """Calls `answer` with one connection after the other to this Unix address, and closes each."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address.removeprefix("unix:"))
        listener.listen()

        def main() -> None:
            with contextlib.suppress(OSError):
                while True:
                    sock, _ = listener.accept()
                    with sock:
                        sock.recv(handshake.CLIENT_HELLO_SIZE, socket.MSG_WAITALL)
                        answer(sock)

        thread = threading.Thread(target=main)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)


def accept(sock: socket.socket) -> None:
    """Answers a client's hello as a server does that takes it."""
    sock.sendall(handshake.encode_server_hello(handshake.ACCEPTED, bytes(16), "stand-in"))


@contextlib.contextmanager
def greeted(address: str, token: bytes = b"", flags: int = 0) -> Iterator[socket.socket]:
    """A client's connection to this Unix address, once the server has accepted its hello."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(10)
        sock.connect(address.removeprefix("unix:"))
        sock.sendall(handshake.encode_client_hello(token, Peer("stand-in"), flags))
        sock.recv(handshake.SERVER_HELLO_SIZE, socket.MSG_WAITALL)
        yield sock


def read_frames(sock: Any, n: int) -> list[framing.Fields]:
    """Return the next n frames, or those that come before the end, within 10 s each."""
    sock.settimeout(10)
    frames: list[framing.Fields] = []
    decoder = framing.FrameDecoder()
    while len(frames) < n:
        size = sock.recv_into(decoder.buffer)
        if not size:
            break
        frames += decoder.received(size)
    return frames
