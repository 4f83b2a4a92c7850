"""The gRPC server that belongs to a courier server."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any

import grpc

from launchpad.courier.grpc import common
from launchpad.courier.grpc.courier_service import CourierService
from launchpad.courier.grpc.health_and_reflection import HealthService, ReflectionService
from launchpad.courier.grpc.json_service import JsonService
from launchpad.courier.security import keyring
from launchpad.courier.server import strangers
from launchpad.courier.server.thread_pool import FunctionJob
from launchpad.courier.transport import network_address as endpoints

if TYPE_CHECKING:
    from launchpad.courier.server.core import ServerCore

_HANDSHAKE_MS = 2000
_END_S = 5.0  # the longest time for gRPC to clean up after everything was cancelled


class GrpcServer:
    """A gRPC server for a ServerCore, at one address. It uses the core's threads, and one thread of gRPC's.

    Args:
        address: `grpc:HOST:PORT`. Port 0 means any free port. The attribute `address` has the real port.
        core: The core, whose threads must be started before `open` is called.
        token: The token that courier and JSON callers must send.
        health: A function that returns the state of the server.

    Raises OSError if the address cannot be bound.
    """

    def __init__(
        self, address: str, core: ServerCore, token: bytes, health: Callable[[], str]
    ) -> None:
        common.check_process()
        endpoint = endpoints.parse(address, endpoints.GRPC)
        self._courier = CourierService(core, token)
        json = JsonService(core, token)
        self._pool = _CoreExecutor(core)
        self._health = HealthService(health, json.name, self._pool.submit)
        reflection = ReflectionService(json.name, core.methods.list_names)
        services = {
            common.COURIER: self._courier.find,
            json.name: json.find,
            HealthService.NAME: self._health.find,
            **dict.fromkeys(ReflectionService.NAMES, reflection.find),
        }
        options = [
            *common.tune(endpoint),
            ("grpc.so_reuseport", 0),  # otherwise two servers could share a port without noticing
            ("grpc.max_receive_message_length", min(core.max_bytes, common.MAX_BYTES) + (64 << 10)),
            # Calls wait for a thread. By default gRPC would cancel some of them once there are a thousand.
            ("grpc.server.max_pending_requests", 1_000_000),
            ("grpc.server.max_pending_requests_hard_limit", 1_000_000),
            # A limit for clients that say nothing. gRPC has no limit for clients that speak HTTP/2 but send
            # no token.
            ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
            ("grpc.max_allowed_incoming_connections", strangers.at_most()),
        ]
        self._server = grpc.server(self._pool, handlers=[_ServiceRouter(services)], options=options)
        port = _bind(self._server, endpoint)
        self.address = str(endpoints.Endpoint(endpoint.scheme, endpoint.host, port))
        self._stopped: Any = None
        self._is_open = False
        #: Call this when the server's health has changed.
        self.notify_health = self._health.notify

    def open(self) -> None:
        """Begin to serve."""
        self._server.start()
        self._is_open = True

    def begin_stop(self, grace_s: float) -> None:
        """Take no more calls. Cancel the calls that are still running after `grace_s`."""
        if not self._is_open:
            # Otherwise gRPC would keep the port: `stop` does nothing to a server that was never started.
            self._server.start()
        self._stopped = self._server.stop(grace_s)
        for send in tuple(self._courier.open_calls):
            send(None)
        for notify in tuple(self._health.watchers):
            send_health = self._health.watchers.pop(notify, None)
            if send_health is not None:
                send_health(None)

    def end_stop(self) -> None:
        """Cancel all remaining calls, and wait until they have ended.

        If a method stops its own server, this doesn't wait, because the method's caller must still get the
        answer. When the grace is over, gRPC itself then cancels the remaining calls.
        """
        if threading.get_ident() in self._pool.busy:
            return
        if not self._stopped.is_set():
            self._stopped = self._server.stop(0)
        self._stopped.wait(_END_S)


class _CoreExecutor(Executor):
    """The thread pool of a ServerCore as an Executor, which gRPC needs."""

    def __init__(self, core: ServerCore) -> None:
        self._core = core
        self.busy: set[int] = set()  # idents of the threads that serve a call

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            me = threading.get_ident()
            self.busy.add(me)
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)
            finally:
                self.busy.discard(me)

        self._core.pool.submit(FunctionJob(run))
        return future


class _ServiceRouter(grpc.GenericRpcHandler):  # type: ignore[misc]
    """A router that finds the service for a call by the first part of its path, on gRPC's own thread."""

    def __init__(self, services: Mapping[str, Callable[[str, Any], Any]]) -> None:
        self._services = services

    def service(self, handler_call_details: Any) -> Any:
        path = handler_call_details.method
        find = self._services.get(path[1:].rpartition("/")[0])
        return find(path, handler_call_details.invocation_metadata) if find is not None else None


def _bind(server: Any, endpoint: endpoints.Endpoint) -> int:
    credentials = None if endpoint.wants_plaintext else keyring.find_credentials(str(endpoint))
    ip = endpoints.resolve(endpoint, to_bind=True)[0][1][0]
    if credentials is None:
        endpoints.check_plaintext(endpoint, ip)
    where = f"[{ip}]:{endpoint.port}" if ":" in ip else f"{ip}:{endpoint.port}"
    try:
        if credentials is None:
            return int(server.add_insecure_port(where))
        secure = grpc.ssl_server_credentials(
            [(credentials.key_pem, credentials.cert_pem)],
            credentials.ca_pem,
            require_client_auth=True,
        )
        return int(server.add_secure_port(where, secure))
    except RuntimeError as error:
        advice = "another server may already listen on this address; stop it first, or use port 0"
        raise OSError(
            errno.EADDRINUSE, f"gRPC cannot listen here: {advice}", str(endpoint)
        ) from error
