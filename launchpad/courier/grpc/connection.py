"""A client's connection to a server by gRPC, and the thread that opens it.

    send ──handshake done──▶ CALL ──answer──▶ future                 on gRPC's own threads
      └──otherwise──▶ waiting ◀──NOT_RUN──┘
                         │
                       thread: calls Hello until a server answers, then sends the waiting calls

gRPC's UNAVAILABLE does not say whether a call has run. So the client makes no call before a server has
answered a Hello, which may be repeated. The client also calls Stay, which the server never answers, and which
ends with the connection. And the server refuses calls that name an incarnation other than its own. Calls that
are in flight when the connection ends fail with OutcomeUnknown.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from functools import partial
from typing import Any

import grpc

from launchpad.courier import fork, log
from launchpad.courier.caller import own_peer
from launchpad.courier.client import call_errors
from launchpad.courier.client.call import NotRun, next_pause, time_left
from launchpad.courier.client.call_errors import is_final
from launchpad.courier.client.connection import check_server_hello
from launchpad.courier.client.server_info import ServerInfo
from launchpad.courier.errors import ProtocolError
from launchpad.courier.grpc import common
from launchpad.courier.grpc.call import GrpcCall
from launchpad.courier.own_threads import OwnThread
from launchpad.courier.protocol import handshake
from launchpad.courier.security import keyring
from launchpad.courier.transport import network_address as endpoints

_Code = grpc.StatusCode
_HELLO_S = 1.0  # then check if the server has failed, and try again
_SIGNS_OF_TLS = ("CERTIFICATE_VERIFY_FAILED", "TLSV1_ALERT", "certificate required", "Peer name")


class GrpcConnection:
    """The gRPC connection that all views of one client share. Safe from any thread."""

    def __init__(self, peer: ServerInfo) -> None:
        self._peer = peer
        # This lock is held for each change of what is open, waiting or in flight. So `close` finds every
        # call, and no call is added to `_waiting` while the thread that would send it ends.
        self._lock = threading.Lock()
        self.open_call: Any = None  # the call of Stay, in flight while the connection is open
        self._channel: Any = None
        self._inherited: Any = None
        self._metadata: tuple[tuple[str, Any], ...] = ()
        self._invoke: Any = None
        self._waiting: deque[GrpcCall] = deque()
        self._in_flight: set[GrpcCall] = set()
        self._thread: threading.Thread | None = None
        self._is_closing = False
        self._wake = threading.Event()
        fork.drop_in_child(self)

    def send(self, call: GrpcCall) -> None:
        """Make the call as soon as possible. Its future gets the outcome."""
        if not self._try_send(call):
            self._enqueue(call)

    def close(self) -> None:
        """End the connection, and fail all calls that wait or are in flight."""
        with self._lock:
            channel = self._channel
            self._channel = None
            self.open_call = None
            thread = self._thread
            self._is_closing = True
            waiting = self._waiting
            self._waiting = deque()
            in_flight = tuple(self._in_flight)
        self._wake.set()
        for call in waiting:
            call.future.fail(call_errors.closed(self._peer, call.method))
        for call in in_flight:
            call.future.fail(call_errors.lost(self._peer, call.method))
        if channel is not None:
            channel.close()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with self._lock:
            self._is_closing = False
        self._wake.clear()

    def drop_inherited(self) -> None:
        """Start afresh in a forked child, where gRPC does not work (common.check_process raises there)."""
        self._lock = threading.Lock()
        # The channel is kept, because freeing it would use gRPC.
        self._inherited = self._channel
        self._channel = None
        self.open_call = None
        self._thread = None
        self._waiting.clear()
        self._in_flight.clear()

    def _enqueue(self, call: GrpcCall) -> None:
        with self._lock:
            if self._is_closing:
                call.future.fail(call_errors.closed(self._peer, call.method))
                return
            self._waiting.append(call)
            self._start_thread()

    def _start_thread(self) -> None:
        if self._thread is None:
            name = f"courier-grpc-{self._peer.label}"
            self._thread = OwnThread(target=self._main, name=name)
            self._thread.start()

    def _try_send(self, call: GrpcCall) -> bool:
        """Send the call. Return False if it must wait for a server."""
        with self._lock:
            invoke = self._invoke
            metadata = self._metadata
            if self.open_call is None:
                return False
            self._in_flight.add(call)
        try:
            call_errors.check_size(self._peer, call.method, call.n_bytes)
            timeout_s = time_left(self._peer, call.method, call.options, call.deadline)
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
        except ValueError:  # another thread has just closed the channel
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
            self._on_lost(self.open_call)  # the server has changed, or is gone
        except NotRun:
            call.pause_s = next_pause(call.pause_s)
            call.not_before = time.monotonic() + call.pause_s
        self._enqueue(call)

    def _on_lost(self, open_call: Any) -> None:
        """Send nothing more on the connection, because it has ended."""
        with self._lock:
            if open_call is None or self.open_call is not open_call:
                return
            self.open_call = None
            n_in_flight = len(self._in_flight)
            if self._in_flight and not self._is_closing:
                # Some calls may wait within gRPC. The thread fails them if the server has failed.
                self._start_thread()
        log.debug("connection to %s ended with %d calls in flight", self._peer, n_in_flight)
        open_call.cancel()

    # The methods that the thread runs, in order.

    def _main(self) -> None:
        pause_s = 0.0
        while True:
            with self._lock:
                is_needed = self._waiting or (self._in_flight and self.open_call is None)
                if self._is_closing or not is_needed:
                    self._thread = None
                    return
            try:
                has_handshake = self.open_call is not None or self._run_handshake()
            except Exception as error:
                with self._lock:
                    waiting = self._waiting
                    self._waiting = deque()
                for call in (*waiting, *self._in_flight):
                    call.fail(error)
                continue
            pause_s = next_pause(pause_s) if pause_s or not has_handshake else next_pause()
            with self._lock:
                waiting = self._waiting
                self._waiting = deque()
            for call in waiting:
                if not has_handshake or call.not_before:
                    call.check_wait()
                may_send = has_handshake and call.not_before <= time.monotonic()
                is_sent = may_send and not call.future.done() and self._try_send(call)
                if not is_sent and not call.future.done():
                    with self._lock:
                        self._waiting.append(call)
            try:
                if not has_handshake:
                    self._peer.raise_if_failed()
            except Exception as error:
                for call in tuple(self._in_flight):
                    call.fail(error)
            self._wake.wait(pause_s)

    def _run_handshake(self) -> bool:
        """Call Hello once. Return False if no server is up. Raise errors that every attempt would raise."""
        try:
            channel = self._channel
            if channel is None:
                channel = open_channel(endpoints.parse(self._peer.address, endpoints.GRPC))
                with self._lock:
                    if self._is_closing:
                        channel.close()
                    else:
                        self._channel = channel
        except OSError as error:
            if is_final(error):
                raise
            return False
        token = self._find_token()
        hello_call = channel.unary_unary(common.HELLO)
        metadata = (
            (common.TOKEN, token),
            *common.metadata_of(own_peer()),
            (common.TAKES_BYTES, str(self._peer.max_bytes)),
        )
        try:
            answer = hello_call(b"", timeout=_HELLO_S, metadata=metadata)
            check_server_hello(self._peer, handshake.decode_server_hello(answer))
        except grpc.RpcError as error:
            is_early = self._find_token() != token  # the server has published its token only now
            if not (is_early and error.code() is _Code.UNAUTHENTICATED):
                self._classify(error)
            return False
        except ValueError:  # another thread has just closed the channel
            return False
        assert self._peer.server_hello is not None
        incarnation = (common.INCARNATION, self._peer.server_hello.incarnation)
        open_call = channel.unary_unary(common.KEEP_OPEN).future(b"", metadata=metadata)
        with self._lock:
            self.open_call = open_call
            self._metadata = (*metadata, incarnation)
            self._invoke = channel.unary_unary(common.CALL).future
        log.debug("connected to %s", self._peer)
        open_call.add_done_callback(self._on_lost)
        return True

    def _find_token(self) -> bytes:
        """Return the server's token, even if the server has only published it in a file on this host."""
        try:
            places = endpoints.places_of(self._peer.address)
        except OSError:
            places = []
        return self._peer.find_token(places=places)

    def _classify(self, error: Any) -> None:
        """Raise an error if the next Hello would fail in the same way."""
        code = error.code()
        details = error.details() or ""
        if code is _Code.UNAUTHENTICATED:
            raise call_errors.wrong_token(self._peer)
        if code is _Code.UNIMPLEMENTED:
            raise ProtocolError(
                f"{self._peer.address} is served by gRPC, but by no courier server",
                address=self._peer.address,
            )
        if any(sign in details for sign in _SIGNS_OF_TLS):
            raise call_errors.refused(
                self._peer,
                f"{self._peer} and we do not accept each other's certificates: they are of different "
                f"runs. Give both the same credentials in the keyring. ({details})",
            )


def open_channel(endpoint: endpoints.Endpoint) -> Any:
    """Return a channel, which connects when it is first used.

    Raises PermissionError if TLS is needed and there are no credentials. Raises another OSError if the host
    has no address yet.
    """
    common.check_process()
    if endpoint.port == 0:
        raise ValueError(f"{endpoint} has no port: a client needs the address that a server got")
    credentials = None if endpoint.wants_plaintext else keyring.find_credentials(str(endpoint))
    target = f"dns:///{str(endpoint).partition(':')[2]}"
    options = [*common.tune(endpoint), *_OPTIONS]
    if credentials is not None:
        secure = grpc.ssl_channel_credentials(
            credentials.ca_pem, credentials.key_pem, credentials.cert_pem
        )
        return grpc.secure_channel(
            target, secure, [*options, ("grpc.ssl_target_name_override", keyring.NAME)]
        )
    for _, where in endpoints.resolve(endpoint):
        endpoints.check_plaintext(endpoint, where[0])
    return grpc.insecure_channel(target, options)


_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # so that clients don't share a connection
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 100),
    ("grpc.dns_min_time_between_resolutions_ms", 100),
]
