"""What launcher, host and workers say to each other, and how it travels.

    launcher ── SpecsReady · commands · DumpStacks · AddressesChanged · EndLaunch ──▶ forkserver
                forkserver ── StopWorker · AnnounceGone · AddressesChanged ──▶ worker
                forkserver ◀── Phase · events ── worker
    launcher ◀── ProcessStarted · FromWorker · ChildExited · Ended ── forkserver

Commands are of `launch/supervision/commands.py`, events of `launchpad/events.py`.
From the forkserver, `Ended` is the end of a worker that could not have a process.

A message is plain data, pickled, behind its length (4 bytes, big-endian). The forkserver does not look into
what a worker sends: it passes the frame on inside `FromWorker`. Raw descriptors, because a socket object that
a fork has copied would close, when it is collected, whatever has its number by then.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_CHUNK = 1 << 16


@dataclass(frozen=True)
class SpecsReady:
    """The briefing is complete; its index is so long."""

    index_length: int


@dataclass(frozen=True)
class DumpStacks:
    """Have this worker write its stacks into the file that is there for it."""

    worker: str


@dataclass(frozen=True)
class AddressesChanged:
    """Where addresses are now; empty for one that is nowhere. Told to all workers, where servers move."""

    places: Mapping[str, str]


@dataclass(frozen=True)
class EndLaunch:
    """The launch is over: end what is left, then yourself. An end of the stream without it is a death."""


@dataclass(frozen=True)
class Phase:
    """The worker has come so far."""

    phase: str


@dataclass(frozen=True)
class FromWorker:
    """A frame that a worker sent."""

    worker: str
    frame: bytes


@dataclass(frozen=True)
class ChildExited:
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


class MessageDecoder:
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
    decoder = MessageDecoder()
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
