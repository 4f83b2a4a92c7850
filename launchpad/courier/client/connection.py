"""A connection of a client that carries one call at a time.

If a connection ends, call.py decides whether its request is sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from launchpad.courier import caller, log, transport
from launchpad.courier.client import call_errors
from launchpad.courier.client.call_errors import is_final, is_out_of_descriptors
from launchpad.courier.client.server_info import ServerInfo
from launchpad.courier.errors import ProtocolError
from launchpad.courier.interruptions import is_interruption
from launchpad.courier.protocol import framing, handshake
from launchpad.courier.transport import fault_injection, link, stream_socket
from launchpad.courier.transport.spin_wait import SpinWaiter
from launchpad.courier.transport.stream_socket import NO_SIGNAL, Socket

# No single send or receive takes longer than this. In between, the client can look for the reason of a long
# wait.
CHECK_EVERY_S = 1.0
_HANDSHAKE_TIMEOUT_S = 2.0  # then check if the server has failed, and connect again

_pack = framing.HEADER.pack
_MAGIC = framing.MAGIC
_CALL = framing.CALL


class ClientConnection:
    """A socket whose handshake is done. Only one thread uses it at a time."""

    shares_memory = False

    def __init__(
        self, sock: Socket, max_bytes: int, is_stale: Callable[[Socket], bool] | None, address: str
    ) -> None:
        self.sock = sock
        self.address = address  # the server's address
        #: A function that returns True if the socket must not be used again; None if there is no such check.
        self.is_stale = is_stale
        self.was_used = False
        self.is_sent = False
        spin = SpinWaiter(sock)
        self._send = spin.send
        self._receive = spin.receive
        self._decoder = framing.FrameDecoder(
            max_bytes=max_bytes, most_scratch_bytes=framing.SCRATCH_BYTES
        )
        self._received_alone = self._decoder.received_alone
        #: Frames that arrived together with the last answer; they belong to a stream.
        self.rest: Sequence[framing.Fields] = ()
        self.timeout_s = 0.0
        self._unsent: list[memoryview] = []  # the rest of a request that reached the time limit
        self.limit(CHECK_EVERY_S)

    def limit(self, timeout_s: float) -> None:
        """Limit each single send or receive to this time. Make a system call only if the limit changes."""
        if timeout_s != self.timeout_s:
            stream_socket.set_timeouts(self.sock, timeout_s)
            self.timeout_s = timeout_s

    def exchange(
        self,
        method: bytes,
        body: bytes,
        buffers: Sequence[memoryview],
        timeout_us: int,
        header_data: bytes = b"",
    ) -> framing.Fields:
        """Write a call and read its answer.

        Raises OSError; if the time limit has passed, BlockingIOError. After an error, `is_sent` is True if
        the call was written in full, so that it may have run.
        """
        self.is_sent = False
        if buffers or header_data or len(body) > framing.SMALL:
            chunks = framing.encode(framing.CALL, 0, method, body, buffers, timeout_us, header_data)
            if len(chunks) > 1 or self.shares_memory:
                self._unsent = [memoryview(chunk) for chunk in chunks if len(chunk)]
                return self.resume()
            frame = bytes(chunks[0])
        else:
            frame = _pack(_MAGIC, _CALL, len(method), 0, 0, len(body), timeout_us) + method + body
        try:
            n = self._send(frame, NO_SIGNAL)
        except BlockingIOError:
            n = 0
        if n != len(frame):
            self._unsent = [memoryview(frame)[n:]]
            return self.resume()
        self.is_sent = True
        n = self._receive(self._decoder.buffer)
        return self._received_alone(n) or self._received(n) or self.receive()

    def resume(self) -> framing.Fields:
        """Continue an `exchange` that reached the time limit: write the rest, and read the answer."""
        if not self.is_sent:
            stream_socket.send_rest(self.sock, self._unsent)
            self.is_sent = True
        return self.receive()

    def receive(self) -> framing.Fields:
        """Return the next frame. Raises OSError; if the time limit has passed, BlockingIOError."""
        reply = None
        while reply is None:
            n = self._receive(self._decoder.buffer)
            reply = self._received_alone(n) or self._received(n)
        return reply

    def _received(self, n: int) -> framing.Fields | None:
        frames = self._decode(n)
        if len(frames) > 1:
            self.rest = frames[1:]
            self._check_for_goaway(self.rest)
        return frames[0] if frames else None

    def receive_all(self, flags: int = 0, *, may_spin: bool = False) -> Sequence[framing.Fields]:
        """Read once for a call with streams. Return the complete frames. Raises what `receive` raises."""
        buffer = self._decoder.buffer
        n = self._receive(buffer) if may_spin else self.sock.recv_into(buffer, 0, flags)
        frames = self._decode(n)
        self._check_for_goaway(frames)
        return frames

    def close(self) -> None:
        self.sock.close()

    def _decode(self, n: int) -> Sequence[framing.Fields]:
        """Return the frames that the last n bytes complete."""
        if not n:
            raise ConnectionResetError("the connection ended")
        try:
            return self._decoder.received(n)
        except ProtocolError as error:
            raise ConnectionAbortedError(str(error)) from error

    def _check_for_goaway(self, frames: Sequence[framing.Fields]) -> None:
        if any(frame[0] == framing.NOT_RUN for frame in frames):
            # There was a GOAWAY after the answer, so the server takes no more calls on this connection.
            self.is_stale = lambda _: True


def open_socket(
    peer: ServerInfo, timeout_s: float | None, flags: int = 0
) -> tuple[Socket, str] | None:
    """Connect once to the server's current address. After the handshake, return the socket and the address.

    Returns None if no server is up, or if the server's address is not known. Raises Refused if the server
    refuses the handshake, or if only threads of another process can reach the server.
    """
    address = peer.locate()
    if not address:
        return None
    limit_s = _HANDSHAKE_TIMEOUT_S if timeout_s is None else min(timeout_s, _HANDSHAKE_TIMEOUT_S)
    sock = None
    if peer.is_in_another_process:
        raise call_errors.in_another_process(peer)
    try:
        sock = transport.find(address).connect(address, limit_s)
        sock.settimeout(limit_s)
        # A server on this host may have published its token for this host and port; with TLS it never does.
        raw = stream_socket.raw_of(sock)
        places = [raw.getpeername()[:2]] if address.startswith("tcp:") and raw is sock else []
        token = peer.find_token(address, places)
        sock.sendall(handshake.encode_client_hello(token, caller.own_peer(), flags, peer.max_bytes))
        start = stream_socket.receive_exactly(sock, len(handshake.TLS_ALERT))
        if start == handshake.TLS_ALERT:
            raise call_errors.refused(
                peer,
                f"{peer} wants TLS, and we have no credentials for it. Before the first call: "
                "keyring.add(prefix, token, credentials), with those of the server's process.",
            )
        start += stream_socket.receive_exactly(sock, handshake.START_SIZE - len(start))
        version = handshake.read_version(start)
        if version == handshake.VERSION:
            start += stream_socket.receive_exactly(sock, handshake.SERVER_HELLO_SIZE - len(start))
            server_hello = handshake.decode_server_hello(start)
        else:
            server_hello = handshake.ServerHello(version, handshake.BAD_VERSION, b"", "")
        if server_hello.status == handshake.BAD_TOKEN and peer.find_token(address, places) != token:
            raise ConnectionRefusedError("its token was not there yet; it is now")
        earlier = peer.server_hello
        check_server_hello(peer, server_hello)
        sock.settimeout(None)
        if peer.link is not None:
            sock = link.hold_up(sock, peer.link)
        sock = fault_injection.wrap(sock)
        peer.is_unreachable = False
        # This is in the `try`, because if the thread is interrupted while it logs, the socket must be closed.
        is_restarted = earlier is not None and earlier.incarnation != server_hello.incarnation
        note = ", which was restarted" if is_restarted else ""
        log.debug("connected to %s%s", peer.describe(address), note)
    except BaseException as error:
        if sock is not None:
            sock.close()
        if is_final(error) or not isinstance(error, OSError) or is_interruption(error):
            raise
        if is_out_of_descriptors(error):
            # The server may be up. Then the call would silently wait for a descriptor, not for the server.
            raise call_errors.out_of_descriptors(peer) from error
        _log_outage(peer, error)
        return None
    if peer.has_moved_from(address):  # during the handshake
        log.debug("%s has moved from %s during the handshake", peer, address)
        sock.close()
        return None
    return sock, address


def _log_outage(peer: ServerInfo, error: OSError) -> None:
    """Log that the server can't be reached, but only once until it is back, however often clients try."""
    if not peer.is_unreachable:
        peer.is_unreachable = True
        log.debug("cannot connect to %s (%s: %s); trying again", peer, type(error).__name__, error)


def check_server_hello(peer: ServerInfo, server_hello: handshake.ServerHello) -> None:
    """Process the server's part of the handshake. Raises Refused if the server refuses the client."""
    previous_hello = peer.server_hello
    peer.server_hello = server_hello
    peer.takes_bytes = server_hello.max_bytes
    peer.server = server_hello.server or peer.server
    peer.labels[0] = peer.label
    if server_hello.status == handshake.BAD_TOKEN:
        raise call_errors.wrong_token(peer)
    if server_hello.status != handshake.ACCEPTED or server_hello.version != handshake.VERSION:
        raise call_errors.refused(
            peer,
            f"{peer} speaks version {server_hello.version} of the protocol, we speak"
            f" {handshake.VERSION}. Run the same release of launchpad on both sides.",
        )
    if server_hello.boot_id != handshake.boot_id():
        peer.shares_memory = False  # the socket is forwarded from another host
    if previous_hello is not None and previous_hello.incarnation != server_hello.incarnation:
        for callback in tuple(peer.restart_callbacks):
            callback()
