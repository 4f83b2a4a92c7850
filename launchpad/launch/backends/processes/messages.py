"""What launcher, host and workers say to each other, and how it travels.

    launcher ──Hello · Start · Ask · Dump · Kill · Over · Placed · Bye──▶ host ──Ask · Over · Placed──▶ worker
    launcher ◀──Forked · NotForked · Said · Gone────────── host ◀──Phase · reports · Outcome── worker

A message is plain data, pickled, behind its length (4 bytes, big-endian). The host does not look into what
a worker says: it passes the frame on inside `Said`. Raw descriptors, because a socket object that a fork
has copied would close, when it is collected, whatever has its number by then.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_CHUNK = 1 << 16


@dataclass(frozen=True)
class Hello:
    """The briefing is complete; its index is so long."""

    index_length: int


@dataclass(frozen=True)
class Start:
    """Start this worker."""

    worker: str
    attempt: int


@dataclass(frozen=True)
class Ask:
    """Ask this worker to stop; `restarts`: in order to be started again."""

    worker: str
    restarts: bool = False


@dataclass(frozen=True)
class Kill:
    """End this worker and its process group.

    `at_once`: without a moment to write its stacks into its log.
    """

    worker: str
    at_once: bool = False


@dataclass(frozen=True)
class Dump:
    """Have this worker write its stacks into the file that is there for it."""

    worker: str


@dataclass(frozen=True)
class Over:
    """This worker has ended for good; told to all the others."""

    worker: str
    why: str


@dataclass(frozen=True)
class Placed:
    """Where addresses are now; empty for one that is nowhere. Told to all workers, where servers move."""

    places: Mapping[str, str]


@dataclass(frozen=True)
class Bye:
    """The launch is over: end what is left, then yourself. An end of the stream without it is a death."""


@dataclass(frozen=True)
class Phase:
    """The worker has come so far."""

    phase: str


@dataclass(frozen=True)
class Forked:
    """A worker has its process."""

    worker: str
    pid: int


@dataclass(frozen=True)
class NotForked:
    """A worker could not have a process."""

    worker: str
    error: OSError


@dataclass(frozen=True)
class Said:
    """A frame that a worker sent."""

    worker: str
    frame: bytes


@dataclass(frozen=True)
class Gone:
    """A worker's process has ended: the kernel's exit status and its peak memory.

    `out_of_memory`: whether the kernel has just killed for want of memory; None if it does not tell.
    """

    worker: str
    status: int
    peak_bytes: int
    out_of_memory: bool | None = None


def encode(message: Any) -> bytes:
    """The message as a frame."""
    body = pickle.dumps(message, protocol=5)
    return len(body).to_bytes(4, "big") + body


class Decoder:
    """Bytes in, bodies of frames out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The bodies that `data` completes."""
        self._buffer += data
        while len(self._buffer) >= 4:
            end = 4 + int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[4:end])
            del self._buffer[:end]
            yield body


def receive(fd: int) -> Iterator[Any]:
    """The messages that arrive at a blocking descriptor, until its other end is closed."""
    decoder = Decoder()
    while data := read(fd):
        for body in decoder.feed(data):
            yield pickle.loads(body)


def send(fd: int, message: Any) -> None:
    """Writes all of a message to a blocking descriptor. Callers see to it that they do so one at a time."""
    left = memoryview(encode(message))
    while left:
        left = left[os.write(fd, left) :]


def read(fd: int) -> bytes:
    """What has arrived; nothing at the end of the stream."""
    try:
        return os.read(fd, _CHUNK)
    except ConnectionResetError:  # it went without reading what we had sent
        return b""
