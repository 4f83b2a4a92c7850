"""Fault injection for tests: lose, damage or delay messages on their way.

A stream socket never loses a message alone: the connection ends with the message. So a fault that loses a
message also ends the connection.

    with Faults(seed=7, drop_request=0.01, drop_response=0.01):
        …       # what clients in this process send and receive on connections opened from here on
"""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from launchpad.courier import fork
from launchpad.courier.interruptions import Lock
from launchpad.courier.protocol.framing import Chunk
from launchpad.courier.transport.stream_socket import Socket, SocketWrapper


@dataclass
class Faults:
    """A context manager that makes a process's network fail at random. Only one at a time may be active.

    Example:
        with testing.Faults(seed=1, drop_response=0.05):
            with pytest.raises(courier.OutcomeUnknown):
                for i in range(1000):
                    client.add(i)

    Attributes:
        seed: The seed of the random choices. The same calls in the same order meet the same faults.
        drop_request: The probability, from 0 to 1, that a request is lost, and the connection with it.
        drop_response: The probability that a response is lost, and the connection with it, after the method
            has run.
        cut: The probability that the connection ends in the middle of a request.
        corrupt: The probability that a request is damaged on the way, so that the server ends the connection.
        delay: The probability that a message is late, by `delay_s` seconds.

    Raises:
        ValueError: A probability is not from 0 to 1.
    """

    seed: int = 0
    drop_request: float = 0.0
    drop_response: float = 0.0
    cut: float = 0.0
    corrupt: float = 0.0
    delay: float = 0.0
    delay_s: float = 0.01
    counts: dict[str, int] = field(default_factory=dict)
    """The number of times that each fault has happened."""

    def __post_init__(self) -> None:
        for name in ("drop_request", "drop_response", "cut", "corrupt", "delay"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is how often, from 0 to 1, not {getattr(self, name)!r}")
        self._random = random.Random(self.seed)
        # Held to draw a number and to count, so that no count is lost.
        self._lock = fork.free_in_child(Lock())

    def __enter__(self) -> Faults:
        global _active
        if _active is not None:
            raise RuntimeError("there are faults at work in this process already")
        _active = self
        return self

    def __exit__(self, *_: object) -> None:
        global _active
        _active = None

    def happens(self, fault: str) -> bool:
        """Decide at random whether a fault happens now, and count it if it does."""
        often: float = getattr(self, fault)
        if not often:
            return False
        with self._lock:
            is_due = self._random.random() < often
            if is_due:
                self.counts[fault] = self.counts.get(fault, 0) + 1
            return is_due


_active: Faults | None = None


def wrap(sock: Socket) -> Socket:
    """Return the socket itself, or a `FaultySocket` around it while a `Faults` is active."""
    return sock if _active is None else FaultySocket(sock, _active)


class FaultySocket(SocketWrapper):
    """A client's socket with faults. It treats each send as a request, and each receive as a response."""

    def __init__(self, sock: Socket, faults: Faults) -> None:
        super().__init__(sock)
        self._faults = faults
        self.close = sock.close

    def send(self, data: Chunk, flags: int = 0) -> int:
        return self.sendmsg([memoryview(data)], (), flags)

    def sendmsg(self, chunks: Iterable[Chunk], ancillary: Any = (), flags: int = 0) -> int:
        """Send the chunks, or apply a fault to them."""
        faults = self._faults
        chunks = list(chunks)
        self._delay()
        size = sum(len(chunk) for chunk in chunks)
        if faults.happens("drop_request"):
            self._end()
            return size
        if faults.happens("cut"):
            n_sent = self._sock.send(memoryview(b"".join(chunks))[: size // 2], flags)
            self._end()
            return n_sent
        if faults.happens("corrupt"):
            first, *other_chunks = chunks
            chunks = [bytes([first[0] ^ 0xFF]) + bytes(first[1:]), *other_chunks]
        return self._sock.sendmsg(chunks, ancillary, flags)

    def recv_into(self, buffer: Any, size: int = 0, flags: int = 0) -> int:
        return self._apply(self._sock.recv_into(buffer, size, flags))

    def recvmsg_into(self, buffers: Sequence[Any], space: int, flags: int) -> Any:
        n, ancillary, *flags_and_address = self.raw.recvmsg_into(buffers, space, flags)
        return self._apply(n), ancillary, *flags_and_address

    def _apply(self, n: int) -> int:
        """Apply faults to `n` received bytes, and return how many bytes the reader gets."""
        self._delay()
        if n and self._faults.happens("drop_response"):
            self._end()
            return 0
        return n

    def _delay(self) -> None:
        if self._faults.happens("delay"):
            time.sleep(self._faults.delay_s)

    def _end(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
