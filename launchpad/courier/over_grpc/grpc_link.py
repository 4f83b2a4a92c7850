"""A client's connection to a server by gRPC, and who looks after it.

    send ──greeted──▶ CALL ──answer──▶ future                 on gRPC's own threads
      └──otherwise──▶ waiting ◀──NOT_RUN──┘
                         │
                       keeper: says Hello until a server answers, then sends what waits

gRPC's UNAVAILABLE does not say whether a call has run. So nothing is called before a server has
answered a Hello, which may be repeated; a STAY that never ends tells when that connection does; and
the server refuses calls that name another incarnation than its own. Whatever has been called and not
been answered then is OutcomeUnknown.
"""

from __future__ import annotations

import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc

from launchpad.courier import forking, identity
from launchpad.courier.carriers import endpoint as endpoints
from launchpad.courier.carriers.endpoint import Endpoint
from launchpad.courier.clients.peer import NotRun, Peer, is_final, next_pause
from launchpad.courier.errors import ProtocolError
from launchpad.courier.over_grpc import package
from launchpad.courier.over_grpc.grpc_call import GrpcCall, refused
from launchpad.courier.protocol import greeting
from launchpad.courier.trust.credentials import NAME

if TYPE_CHECKING:
    from launchpad.courier.trust.credentials import Credentials

_Code = grpc.StatusCode
_HELLO_S = 1.0  # then anew, and look at the verdict in between
_SIGNS_OF_TLS = ("CERTIFICATE_VERIFY_FAILED", "TLSV1_ALERT", "certificate required", "Peer name")


class GrpcLink:
    """What all views of one client share. Safe from any thread."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._lock = threading.Lock()
        self._channel: Any = None
        self._inherited: Any = None
        self._stay: Any = None  # in flight while there is a greeted connection
        self._metadata: tuple[tuple[str, Any], ...] = ()
        self._invoke: Any = None
        self._waiting: deque[GrpcCall] = deque()
        self._in_flight: set[GrpcCall] = set()
        self._keeper: threading.Thread | None = None
        self._is_closing = False
        self._wake = threading.Event()
        forking.drop_in_child(self)

    @property
    def is_greeted(self) -> bool:
        """A server has answered, and the connection has not ended since."""
        return self._stay is not None

    def send(self, call: GrpcCall) -> None:
        """Makes the call as soon as that is possible. Its future gets whatever comes of it."""
        call.future.set_on_cancel(partial(self._cancel, call))
        if not self._try_send(call):
            self._enqueue(call)

    def close(self) -> None:
        """Ends the connection, and whatever is in flight."""
        with self._lock:
            channel, self._channel, self._stay = self._channel, None, None
            keeper, self._is_closing = self._keeper, True
            waiting, self._waiting = self._waiting, deque()
            in_flight = tuple(self._in_flight)
        self._wake.set()
        for call in waiting:
            call.future.fail(self._peer.closed(call.method))
        for call in in_flight:
            call.future.fail(self._peer.lost(call.method))
        if channel is not None:
            channel.close()
        if keeper is not None and keeper is not threading.current_thread():
            keeper.join()
        with self._lock:
            self._is_closing = False
        self._wake.clear()

    def drop_inherited(self) -> None:
        """For a forked child, in which gRPC does not work (package.py says so when it is used)."""
        self._lock = threading.Lock()
        self._inherited, self._channel = self._channel, None  # to let go of it would use it
        self._stay = self._keeper = None
        self._waiting.clear()
        self._in_flight.clear()

    def _cancel(self, call: GrpcCall) -> None:
        rpc = call.rpc
        if rpc is not None:
            rpc.cancel()

    def _enqueue(self, call: GrpcCall) -> None:
        with self._lock:
            if self._is_closing:
                call.future.fail(self._peer.closed(call.method))
                return
            self._waiting.append(call)
            self._start_keeper()

    def _start_keeper(self) -> None:
        if self._keeper is None:
            name = f"courier-grpc-{self._peer.label}"
            self._keeper = threading.Thread(target=self._keep, name=name, daemon=True)
            self._keeper.start()

    def _try_send(self, call: GrpcCall) -> bool:
        """False when it has to wait for a server."""
        with self._lock:
            invoke, metadata = self._invoke, self._metadata
            if self._stay is None:
                return False
            self._in_flight.add(call)
        try:
            timeout_s = call.check_before_sending()
        except Exception as error:
            self._in_flight.discard(call)
            call.future.fail(error)
            return True
        try:
            rpc = invoke(
                call.frame,
                timeout=timeout_s,
                metadata=metadata,
                wait_for_ready=call.options.wait_for_ready,
            )
        except ValueError:  # the channel was closed in this moment
            self._in_flight.discard(call)
            return False
        call.rpc = rpc
        if call.future.cancelled():
            rpc.cancel()
        rpc.add_done_callback(partial(self._take_answer, call))
        return True

    def _take_answer(self, call: GrpcCall, rpc: Any) -> None:
        self._in_flight.discard(call)
        call.rpc = None
        try:
            if call.take_answer(rpc):
                return
            self._lose(self._stay)  # it is another server, or none
        except NotRun:
            call.postpone()
        self._enqueue(call)

    def _lose(self, stay: Any) -> None:
        """The connection has ended: nobody sends on it any more."""
        with self._lock:
            if stay is None or self._stay is not stay:
                return
            self._stay = None
            if self._in_flight and not self._is_closing:
                self._start_keeper()  # some may wait within gRPC: for them it asks for the verdict
        stay.cancel()

    # The keeper's thread, in the order in which it runs.

    def _keep(self) -> None:
        pause_s = 0.0
        while not self._may_end():
            try:
                is_greeted = self.is_greeted or self._greet()
            except Exception as error:
                self._fail_all(error)
                continue
            pause_s = next_pause(pause_s) if pause_s or not is_greeted else next_pause()
            self._look_after(is_greeted)
            self._wake.wait(pause_s)

    def _may_end(self) -> bool:
        with self._lock:
            is_needed = self._waiting or (self._in_flight and self._stay is None)
            if is_needed and not self._is_closing:
                return False
            self._keeper = None
            return True

    def _look_after(self, is_greeted: bool) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, deque()
        for call in waiting:
            if not is_greeted:
                call.check_wait()
            is_sent = (
                is_greeted and call.is_due() and not call.future.done() and self._try_send(call)
            )
            if not is_sent and not call.future.done():
                with self._lock:
                    self._waiting.append(call)
        if not is_greeted:
            self._ask_for_verdict()

    def _ask_for_verdict(self) -> None:
        try:
            self._peer.raise_verdict()
        except Exception as error:
            for call in tuple(self._in_flight):
                call.future.fail(error)
                self._cancel(call)

    def _fail_all(self, error: Exception) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, deque()
        for call in (*waiting, *self._in_flight):
            call.future.fail(error)
            self._cancel(call)

    def _greet(self) -> bool:
        """Says Hello once; False when no server is up. Raises what no further attempt will cure."""
        try:
            channel = self._open()
        except OSError as error:
            if is_final(error):
                raise
            return False
        say_hello = channel.unary_unary(package.HELLO)
        metadata = self._introduce()
        try:
            answer = say_hello(b"", timeout=_HELLO_S, metadata=metadata)
            self._peer.check_welcome(greeting.decode_welcome(answer))
        except grpc.RpcError as error:
            self._judge(error)
            return False
        except ValueError:  # the channel was closed in this moment
            return False
        assert self._peer.welcome is not None
        incarnation = (package.INCARNATION, self._peer.welcome.incarnation)
        stay = channel.unary_unary(package.STAY).future(b"", metadata=metadata)
        with self._lock:
            self._stay = stay
            self._metadata = (*metadata, incarnation)
            self._invoke = channel.unary_unary(package.CALL).future
        stay.add_done_callback(self._lose)
        return True

    def _judge(self, error: Any) -> None:
        """Raises if what went wrong with a Hello will go wrong with the next one, too."""
        code, details = error.code(), error.details() or ""
        if code is _Code.UNAUTHENTICATED:
            raise refused(self._peer)
        if code is _Code.UNIMPLEMENTED:
            raise ProtocolError(
                f"{self._peer.address} is served by gRPC, but by no courier server",
                address=self._peer.address,
            )
        if any(sign in details for sign in _SIGNS_OF_TLS):
            raise self._peer.refuse(
                f"{self._peer} and we do not accept each other's certificates: they are of different "
                f"runs. Give both the same credentials in the keyring. ({details})"
            )

    def _introduce(self) -> tuple[tuple[str, Any], ...]:
        peer = self._peer
        return (
            (package.TOKEN, peer.token),
            (package.PEER, identity.name().encode()),
            (package.TAKES_BYTES, str(peer.max_bytes)),
        )

    def _open(self) -> Any:
        if self._channel is None:
            channel = open_channel(package.parse(self._peer.address))
            with self._lock:
                if self._is_closing:
                    channel.close()
                else:
                    self._channel = channel
            return channel
        return self._channel


def open_channel(wanted: Endpoint) -> Any:
    """A channel that connects when it is used.

    Raises PermissionError where TLS is needed and there are no credentials; other OSErrors when the
    host has no address yet.
    """
    package.check_process()
    if wanted.port == 0:
        raise ValueError(f"{wanted} has no port: a client needs the address that a server got")
    credentials = package.find_credentials(wanted)
    options = [*package.tune(wanted), *_OPTIONS]
    if credentials is not None:
        secure = [*options, ("grpc.ssl_target_name_override", NAME)]
        return grpc.secure_channel(_name(wanted), _channel_credentials(credentials), secure)
    for _, where in endpoints.resolve(wanted):
        endpoints.check_plaintext(wanted, where[0])
    return grpc.insecure_channel(_name(wanted), options)


def _name(wanted: Endpoint) -> str:
    return f"dns:///{str(wanted).partition(':')[2]}"


def _channel_credentials(credentials: Credentials) -> Any:
    return grpc.ssl_channel_credentials(
        credentials.ca_pem, credentials.key_pem, credentials.cert_pem
    )


_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # a client's connection is its own
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 100),
    ("grpc.dns_min_time_between_resolutions_ms", 100),
]
