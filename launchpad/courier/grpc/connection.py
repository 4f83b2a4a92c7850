"""A client's connection to a server by gRPC, and the thread that makes it.

    send ──handshake done──▶ CALL ──answer──▶ future                 on gRPC's own threads
      └──otherwise──▶ waiting ◀──NOT_RUN──┘
                         │
                       thread: calls Hello until a server answers, then sends what waits

gRPC's UNAVAILABLE does not say whether a call has run. So nothing is called before a server has
answered a Hello, which may be repeated; a Stay that never ends shows when that connection does; and
the server refuses calls that name another incarnation than its own. Whatever has been called and not
been answered then is OutcomeUnknown.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from functools import partial
from typing import Any

import grpc

from launchpad.courier import fork
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
_HELLO_S = 1.0  # then anew, and ask whether it has failed in between
_SIGNS_OF_TLS = ("CERTIFICATE_VERIFY_FAILED", "TLSV1_ALERT", "certificate required", "Peer name")


class GrpcConnection:
    """What all views of one client share. Safe from any thread."""

    def __init__(self, peer: ServerInfo) -> None:
        self._peer = peer
        self._lock = threading.Lock()
        self.open_call: Any = None  # the Stay: in flight while the connection is there
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
        """Makes the call as soon as that is possible. Its future gets whatever comes of it."""
        if not self._try_send(call):
            self._enqueue(call)

    def close(self) -> None:
        """Ends the connection, and whatever is in flight."""
        with self._lock:
            channel, self._channel, self.open_call = self._channel, None, None
            thread, self._is_closing = self._thread, True
            waiting, self._waiting = self._waiting, deque()
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
        """For a forked child, in which gRPC does not work (common.check_process raises when it is used)."""
        self._lock = threading.Lock()
        self._inherited, self._channel = self._channel, None  # freeing it would use it
        self.open_call = self._thread = None
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
        """False when it has to wait for a server."""
        with self._lock:
            invoke, metadata = self._invoke, self._metadata
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
            self._on_lost(self.open_call)  # it is another server, or none
        except NotRun:
            call.pause_s = next_pause(call.pause_s)
            call.not_before = time.monotonic() + call.pause_s
        self._enqueue(call)

    def _on_lost(self, open_call: Any) -> None:
        """The connection has ended: nothing more is sent on it."""
        with self._lock:
            if open_call is None or self.open_call is not open_call:
                return
            self.open_call = None
            if self._in_flight and not self._is_closing:
                self._start_thread()  # some may wait within gRPC: it fails these when the server has failed
        open_call.cancel()

    # The thread, in the order in which it runs.

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
                    waiting, self._waiting = self._waiting, deque()
                for call in (*waiting, *self._in_flight):
                    call.fail(error)
                continue
            pause_s = next_pause(pause_s) if pause_s or not has_handshake else next_pause()
            with self._lock:
                waiting, self._waiting = self._waiting, deque()
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
        """Calls Hello once; False when no server is up. Raises an error that no further attempt will mend."""
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
            is_early = self._find_token() != token  # it was not there yet, and is now
            if not (is_early and error.code() is _Code.UNAUTHENTICATED):
                self._classify(error)
            return False
        except ValueError:  # the channel was closed in this moment
            return False
        assert self._peer.server_hello is not None
        incarnation = (common.INCARNATION, self._peer.server_hello.incarnation)
        open_call = channel.unary_unary(common.KEEP_OPEN).future(b"", metadata=metadata)
        with self._lock:
            self.open_call = open_call
            self._metadata = (*metadata, incarnation)
            self._invoke = channel.unary_unary(common.CALL).future
        open_call.add_done_callback(self._on_lost)
        return True

    def _find_token(self) -> bytes:
        """The server's token, also where it has left it in a file on this host."""
        try:
            places = endpoints.places_of(self._peer.address)
        except OSError:
            places = []
        return self._peer.find_token(places=places)

    def _classify(self, error: Any) -> None:
        """Raises if what went wrong with a Hello will go wrong with the next one, too."""
        code, details = error.code(), error.details() or ""
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


def open_channel(wanted: endpoints.Endpoint) -> Any:
    """A channel that connects when it is used.

    Raises PermissionError where TLS is needed and there are no credentials; other OSErrors when the
    host has no address yet.
    """
    common.check_process()
    if wanted.port == 0:
        raise ValueError(f"{wanted} has no port: a client needs the address that a server got")
    credentials = None if wanted.wants_plaintext else keyring.find_credentials(str(wanted))
    target = f"dns:///{str(wanted).partition(':')[2]}"
    options = [*common.tune(wanted), *_OPTIONS]
    if credentials is not None:
        secure = grpc.ssl_channel_credentials(
            credentials.ca_pem, credentials.key_pem, credentials.cert_pem
        )
        return grpc.secure_channel(
            target, secure, [*options, ("grpc.ssl_target_name_override", keyring.NAME)]
        )
    for _, where in endpoints.resolve(wanted):
        endpoints.check_plaintext(wanted, where[0])
    return grpc.insecure_channel(target, options)


_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # a client's connection is its own
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 100),
    ("grpc.dns_min_time_between_resolutions_ms", 100),
]
