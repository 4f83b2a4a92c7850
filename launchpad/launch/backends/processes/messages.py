"""What launcher, forkserver and workers send to each other, and how.

    launcher ── SpecsReady · commands · DumpStacks ──▶ forkserver
                AttachDebugger · AddressesChanged · EndLaunch
                forkserver ── StopWorker · AnnounceGone · AnnounceWatermarks ──▶ worker
                              AttachDebugger · AddressesChanged
                forkserver ◀── Phase · Awaits · ReturnedInFile · events ── worker
    launcher ◀── ProcessStarted · FromWorker · Garbled · ChildExited · Ended ── forkserver

Commands are of `launchpad/runtime/commands.py`, events of `launchpad/runtime/events.py`.
From the forkserver, `Ended` is the end of a worker that could not have a process.

A message is plain data, pickled, behind its length (4 bytes, big-endian). The forkserver does not look into
what a worker sends: it passes the frame on inside `FromWorker`. Code of the user's may write to a descriptor
that is not its own; what is no frame is the end of the connection that it came by, and `Garbled` says whose.
Raw descriptors, because a socket object that a fork has copied would close, when it is collected, whatever
has its number by then. The forkserver reads and writes without ever waiting: its ends of the connections are
`NonblockingPipe`s.
"""

from __future__ import annotations

import os
import pickle
import selectors
from collections.abc import Callable, Iterator
from typing import Any

from launchpad.courier.light_dataclass import dataclass

_CHUNK = 1 << 16
_PROTOCOL = 5
_PICKLED = bytes([0x80, _PROTOCOL])  # with which each body begins


@dataclass(frozen=True)
class SpecsReady:
    """The file of specs is complete; its index is so long.

    `log`: where what the forkserver prints goes from now on, if it is a process of its own.
    """

    index_length: int
    log: str = ""


@dataclass(frozen=True)
class DumpStacks:
    """Have this worker write its stacks into its file for them."""

    worker: str


@dataclass(frozen=True)
class EndLaunch:
    """The launch is over: end what is left, then yourself. An end of the stream without it is a crash."""


@dataclass(frozen=True)
class Phase:
    """The worker has reached this phase."""

    phase: str


@dataclass(frozen=True)
class Awaits:
    """The worker has reported its outcome, and does not exit before this has ended: `its thread 'writer'`."""

    what: str


@dataclass(frozen=True)
class ReturnedInFile:
    """As `Returned`, pickled into a file: it is large, and the forkserver need not carry it."""

    worker: str
    attempt: int
    path: str


@dataclass(frozen=True)
class FromWorker:
    """A frame that a worker sent."""

    worker: str
    frame: bytes


@dataclass(frozen=True)
class Garbled:
    """By a worker's connection came something else than messages; nothing more is read of it."""

    worker: str


@dataclass(frozen=True)
class ChildExited:
    """A worker's process has ended: the kernel's exit status and its peak memory.

    `out_of_memory`: whether the kernel has just killed for lack of memory; None if it does not tell.
    """

    worker: str
    status: int
    peak_bytes: int
    out_of_memory: bool | None = None


def encode(message: Any) -> bytes:
    """The message as a frame."""
    body = pickle.dumps(message, _PROTOCOL)
    return len(body).to_bytes(4, "big") + body


class GarbledError(Exception):
    """Bytes arrived that are no frame."""


class MessageDecoder:
    """Bytes in, bodies of frames out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The bodies that `data` completes. GarbledError: it has none of our frames."""
        self._buffer += data
        while len(self._buffer) >= 4 + len(_PICKLED):
            if not self._buffer.startswith(_PICKLED, 4):
                raise GarbledError(f"this is no message: {bytes(self._buffer[:40])!r}")
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
    """Writes all of a message to a blocking descriptor. Only one thread at a time may do so."""
    left = memoryview(encode(message))
    while left:
        left = left[os.write(fd, left) :]


def read(fd: int) -> bytes:
    """What has arrived; nothing at the end of the stream."""
    try:
        return os.read(fd, _CHUNK)
    except ConnectionResetError:  # the other end closed without reading what we had sent
        return b""


class NonblockingPipe:
    """A connection in the forkserver's selector. What the kernel does not take now goes out when it can.

    Args:
        fd: Closed with this object.
        selector: Each entry's data is a function of the events.
        on_message: Called with the body of each frame that arrives.
        on_garbled: Called if something else arrives; that is the end of the connection.
    """

    def __init__(
        self,
        fd: int,
        selector: selectors.BaseSelector,
        on_message: Callable[[bytes], None],
        on_garbled: Callable[[], None] = lambda: None,
    ) -> None:
        os.set_blocking(fd, False)
        self._fd, self._selector, self._on_message = fd, selector, on_message
        self._on_garbled = on_garbled
        self._decoder = MessageDecoder()
        self._unsent = bytearray()
        self.is_open = True
        selector.register(fd, selectors.EVENT_READ, self._serve)

    def send(self, message: Any) -> None:
        if self.is_open:
            self._unsent += encode(message)
            self._flush()

    def drain(self) -> None:
        try:
            while self.is_open:
                data = read(self._fd)
                for body in self._decoder.feed(data):
                    self._on_message(body)
                if not data:
                    self._shut()
        except BlockingIOError:
            return
        except GarbledError:
            self._shut()
            self._on_garbled()

    def finish(self) -> None:
        """Sends what is kept, however long it takes, unless the other end is closed."""
        if self.is_open:
            os.set_blocking(self._fd, True)
            self._flush()

    def close(self) -> None:
        self._shut()
        os.close(self._fd)

    def _serve(self, events: int) -> None:
        if events & selectors.EVENT_WRITE and self.is_open:
            self._flush()
        if events & selectors.EVENT_READ:
            self.drain()

    def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: os.write(self._fd, self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()  # the other end is closed
        interest = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
        self._selector.modify(self._fd, interest, self._serve)

    def _shut(self) -> None:
        if self.is_open:
            self.is_open = False
            self._selector.unregister(self._fd)
