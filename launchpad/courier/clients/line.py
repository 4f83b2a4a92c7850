"""One connection of a client, on which one call at a time is made.

When may a request be repeated? A server runs complete frames only. So as long as a write fails,
its frame was not complete, and nothing ran. That covers the server which has restarted since the
last call: the first write to the old connection fails. (Over TCP it does not, so there the line is
asked before: see `is_stale`.) Once a request is written in full, and no answer comes, the outcome
is unknown. A server that stops in an orderly way says last of all that nothing else was run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from launchpad.courier import carriers, faults, identity
from launchpad.courier.carriers import sockets
from launchpad.courier.carriers.sockets import NO_SIGNAL, Socket
from launchpad.courier.carriers.vigil import Vigil
from launchpad.courier.clients.peer import Peer, is_final
from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol import greeting, wire

PATIENCE_S = 1.0  # no single send or receive takes longer, so that the waiting can be looked into
_GREETING_S = 2.0  # then connect anew, and look at the verdict in between

_pack, _MAGIC, _CALL = wire.HEADER.pack, wire.MAGIC, wire.CALL


class Line:
    """One greeted connection, used by one thread at a time."""

    shares_memory = False

    __slots__ = (
        "_decoder",
        "_receive",
        "_rest",
        "_send",
        "_unsent",
        "address",
        "is_sent",
        "is_stale",
        "sock",
        "timeout_s",
        "was_used",
    )

    def __init__(
        self,
        sock: Socket,
        max_bytes: int = wire.MAX_BYTES,
        is_stale: Callable[[Socket], bool] | None = None,
        address: str | None = None,
    ) -> None:
        self.sock = sock
        self.address = address  # that it leads to
        #: To be asked, if there is something to ask, before the line is used again.
        self.is_stale = is_stale
        self.was_used = False
        self.is_sent = False
        vigil = Vigil(sock)
        self._send = vigil.send
        self._receive = vigil.receive
        self._decoder = wire.Decoder(max_bytes=max_bytes)
        self._rest: Sequence[wire.Fields] = ()
        self.timeout_s = 0.0
        self._unsent: list[memoryview] = []  # of the request, when the limit passed meanwhile
        self.limit(PATIENCE_S)

    def limit(self, timeout_s: float) -> None:
        """No single send or receive takes longer; a system call only when it has changed."""
        if timeout_s != self.timeout_s:
            sockets.set_timeouts(self.sock, timeout_s)
            self.timeout_s = timeout_s

    def exchange(
        self,
        method: bytes,
        body: bytes,
        buffers: Sequence[memoryview],
        timeout_us: int,
        notes: bytes = b"",
    ) -> wire.Fields:
        """Writes a call and reads its answer.

        Raises OSError; BlockingIOError when the limit has passed. `is_sent` then tells whether
        the call had been written in full, and may have run.
        """
        self.is_sent = False
        if buffers or notes or len(body) > wire.SMALL:
            chunks = wire.encode(wire.CALL, 0, method, body, buffers, timeout_us, notes)
            self._unsent = [memoryview(chunk) for chunk in chunks if len(chunk)]
            return self.go_on()
        frame = _pack(_MAGIC, _CALL, len(method), 0, 0, len(body), timeout_us) + method + body
        try:
            n = self._send(frame, NO_SIGNAL)
        except BlockingIOError:
            n = 0
        if n != len(frame):
            self._unsent = [memoryview(frame)[n:]]
            return self.go_on()
        self.is_sent = True
        decoder = self._decoder
        n = self._receive(decoder.buffer)
        return decoder.received_alone(n) or self._received(n) or self.receive()

    def go_on(self) -> wire.Fields:
        """What `exchange` did when the limit passed: writes what is left, reads the answer."""
        if not self.is_sent:
            self._send_rest()
            self.is_sent = True
        return self.receive()

    def receive(self) -> wire.Fields:
        """The next frame. Raises OSError; BlockingIOError when the limit has passed."""
        reply = None
        while reply is None:
            reply = self._received(self._receive(self._decoder.buffer))
        return reply

    def _send_rest(self) -> None:
        sockets.send_rest(self.sock, self._unsent)

    def _received(self, n: int) -> wire.Fields | None:
        frames = self._decode(n)
        if len(frames) > 1:
            self._rest = frames[1:]
            self._look_for_farewell(self._rest)
        return frames[0] if frames else None

    # For calls with streams, where many frames arrive.

    def take_rest(self) -> Sequence[wire.Fields]:
        """What has arrived together with the last answer."""
        rest, self._rest = self._rest, ()
        return rest

    def receive_all(self, flags: int = 0) -> Sequence[wire.Fields]:
        """Reads once; returns the frames that are now complete. Raises OSError as `receive`."""
        frames = self._decode(self.sock.recv_into(self._decoder.buffer, 0, flags))
        self._look_for_farewell(frames)
        return frames

    def close(self) -> None:
        self.sock.close()

    def _decode(self, n: int) -> Sequence[wire.Fields]:
        """The frames that the last n bytes complete."""
        if not n:
            raise ConnectionResetError("the connection ended")
        try:
            return self._decoder.received(n)
        except ProtocolError as error:
            raise ConnectionAbortedError(str(error)) from error

    def _look_for_farewell(self, frames: Sequence[wire.Fields]) -> None:
        if any(frame[0] == wire.NOT_RUN for frame in frames):
            self.is_stale = _has_been_dismissed


def _has_been_dismissed(_: Socket) -> bool:
    """The server has said more than its answer: that it takes no more calls."""
    return True


class Connected(NamedTuple):
    """A greeted connection, and the address that it was made to."""

    sock: Socket
    address: str


def open_socket(peer: Peer, timeout_s: float | None, flags: int = 0) -> Connected | None:
    """Connects and greets once, where the server is now.

    None when no server is up, or nobody knows where; Refused when it does not want us.
    """
    address = peer.locate()
    found = _connect(peer, address, timeout_s, flags) if address else None
    if found is not None and peer.has_left(address):  # meanwhile
        found.close()
        return None
    return None if found is None else Connected(found, address)


def find_is_stale(peer: Peer, address: str) -> Callable[[Socket], bool] | None:
    """What is to be asked before a connection to there is used again."""
    is_stale = carriers.find(address).is_stale
    return partial(_has_been_left, peer, address, is_stale) if peer.moves else is_stale


def _has_been_left(
    peer: Peer, address: str, is_stale: Callable[[Socket], bool] | None, sock: Socket
) -> bool:
    """An old server may live on, cut off from the rest: it must not be called any more."""
    return peer.has_left(address) or (is_stale is not None and is_stale(sock))


def _connect(peer: Peer, address: str, timeout_s: float | None, flags: int) -> Socket | None:
    limit_s = _GREETING_S if timeout_s is None else min(timeout_s, _GREETING_S)
    sock = None
    try:
        sock = carriers.find(address).connect(address, limit_s)
        sock.settimeout(limit_s)
        token = peer.find_token(address)
        sock.sendall(greeting.encode_greeting(token, identity.name(), flags, peer.max_bytes))
        peer.check_welcome(_receive_welcome(peer, sock))
        sock.settimeout(None)
        return faults.wrap(sock)
    except BaseException as error:
        if sock is not None:
            sock.close()
        if is_final(error) or not isinstance(error, OSError):
            raise
        return None


def _receive_welcome(peer: Peer, sock: Socket) -> greeting.Welcome:
    start = sockets.receive_exactly(sock, len(greeting.TLS_ALERT))
    if start == greeting.TLS_ALERT:
        raise peer.refuse(
            f"{peer} wants TLS, and we have no credentials for it. Before the first call: "
            "keyring.add(prefix, token, credentials), with those of the server's process."
        )
    start += sockets.receive_exactly(sock, greeting.START_SIZE - len(start))
    version = greeting.read_version(start)
    if version != greeting.VERSION:
        return greeting.Welcome(version, greeting.BAD_VERSION, b"", "")
    rest = sockets.receive_exactly(sock, greeting.WELCOME_SIZE - greeting.START_SIZE)
    return greeting.decode_welcome(start + rest)
