"""The messages between launcher, forkserver and workers, and the connections that carry them.

    launcher ── SpecsReady · commands · DumpStacks ──▶ forkserver
                AttachDebugger · AddressesChanged · EndLaunch
                forkserver ── StopWorker · AnnounceGone · AnnounceWatermarks ──▶ worker
                              AttachDebugger · AddressesChanged
                forkserver ◀── Phase · Awaits · ReturnedInFile · events ── worker
    launcher ◀── ProcessStarted · FromWorker · Garbled · ChildExited · Ended ── forkserver

Commands are those of `launchpad/runtime/commands.py`, events those of `launchpad/runtime/events.py`. With
`Ended`, the forkserver reports a worker that could not get a process.

A frame is a message's length (4 bytes, big-endian), followed by the message: plain data, pickled. The
forkserver doesn't look into the frames that a worker sends, but passes them on inside `FromWorker`. The
user's code may write to a descriptor that is not its own. When bytes arrive that aren't a frame, the
forkserver stops reading from that connection, and sends `Garbled` with the worker's name.

The functions here take raw descriptors, not socket objects. After a fork, the garbage collector would close
the copy of a socket object, and so any other file that has the same number by then. The forkserver never
waits when it reads and writes: its ends of the connections are `NonblockingPipe`s.
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
_PICKLED = bytes([0x80, _PROTOCOL])  # the beginning of each body


@dataclass(frozen=True)
class SpecsReady:
    """The file of specs is complete, and its index has this length in bytes.

    `log`: the file for all that the forkserver prints from now on, if it is a separate process.
    """

    index_length: int
    log: str = ""


@dataclass(frozen=True)
class DumpStacks:
    """Have this worker write its stacks into its file for stacks."""

    worker: str


@dataclass(frozen=True)
class EndLaunch:
    """The launch is over: end what is left, then yourself. Without it, the stream's end is a crash."""


@dataclass(frozen=True)
class Phase:
    """The worker has reached this phase."""

    phase: str


@dataclass(frozen=True)
class Awaits:
    """The worker has reported its outcome, and waits before its exit for something: `its thread 'writer'`."""

    what: str


@dataclass(frozen=True)
class ReturnedInFile:
    """A large `Returned`, pickled into a file so that the forkserver need not carry it."""

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
    """A worker's connection carried something other than messages. Nothing more is read from it."""

    worker: str


@dataclass(frozen=True)
class ChildExited:
    """A worker's process has ended: the kernel's exit status and its peak memory.

    `out_of_memory`: True if the kernel has just killed a process for lack of memory; None if it doesn't say.
    """

    worker: str
    status: int
    peak_bytes: int
    out_of_memory: bool | None = None


def encode(message: Any) -> bytes:
    """Return the message as a frame."""
    body = pickle.dumps(message, _PROTOCOL)
    return len(body).to_bytes(4, "big") + body


class GarbledError(Exception):
    """Bytes have arrived that are not a frame."""


class MessageDecoder:
    """A decoder: it takes bytes as they arrive, and yields the bodies of whole frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the bodies that `data` completes. Raise GarbledError if these bytes are not a frame."""
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
    """Yield the messages that arrive at a blocking descriptor, until its other end is closed."""
    decoder = MessageDecoder()
    while data := read(fd):
        for body in decoder.feed(data):
            yield pickle.loads(body)


def send(fd: int, message: Any) -> None:
    """Write all of a message to a blocking descriptor. Only one thread at a time may do so."""
    unwritten = memoryview(encode(message))
    while unwritten:
        unwritten = unwritten[os.write(fd, unwritten) :]


def read(fd: int) -> bytes:
    """Return the bytes that have arrived; empty at the end of the stream."""
    try:
        return os.read(fd, _CHUNK)
    except ConnectionResetError:
        # The other end closed without reading what we had sent.
        return b""


class NonblockingPipe:
    """A connection in the forkserver's selector. Bytes that the kernel doesn't take now are sent later.

    Args:
        fd: The descriptor; `close` closes it.
        selector: A selector. The data of each of its entries is a function that takes the events.
        on_message: Called with the body of each frame that arrives.
        on_garbled: Called if bytes arrive that are not a frame. The connection then ends.
    """

    def __init__(
        self,
        fd: int,
        selector: selectors.BaseSelector,
        on_message: Callable[[bytes], None],
        on_garbled: Callable[[], None] = lambda: None,
    ) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._selector = selector
        self._on_message = on_message
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
        """Send all unsent bytes, however long that takes, unless the other end is closed."""
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
            # The other end is closed.
            self._unsent.clear()
        interest = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
        self._selector.modify(self._fd, interest, self._serve)

    def _shut(self) -> None:
        if self.is_open:
            self.is_open = False
            self._selector.unregister(self._fd)
