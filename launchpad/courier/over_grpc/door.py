"""Where gRPC callers enter a server."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any

import grpc

from launchpad.courier.carriers import endpoint as endpoints
from launchpad.courier.carriers.endpoint import Endpoint
from launchpad.courier.over_grpc import package
from launchpad.courier.over_grpc.courier_service import CourierService
from launchpad.courier.over_grpc.health_service import HealthService
from launchpad.courier.over_grpc.json_service import JsonService
from launchpad.courier.over_grpc.reflection_service import ReflectionService

if TYPE_CHECKING:
    from launchpad.courier.servers.house import House
    from launchpad.courier.trust.credentials import Credentials

_END_S = 5.0  # what gRPC has to clean up after everything has been cancelled


class Door:
    """Serves what a house serves, at one address, by gRPC. Its threads are the house's, but for one.

    Args:
        address: `grpc:HOST:PORT`. Port 0 is any free one; `address` then has the real one.
        house: open at the latest when the door is.
        token: what courier and JSON callers have to show.
        health: what the server says of itself.

    Raises OSError when the address cannot be had.
    """

    def __init__(self, address: str, house: House, token: bytes, health: Callable[[], str]) -> None:
        package.check_process()
        wanted = package.parse(address)
        self._courier = CourierService(house, token)
        json = JsonService(house, token)
        self._pool = _Pool(house)
        self._health = HealthService(health, json.name, self._pool.submit)
        reflection = ReflectionService(json.name, house.methods.list_names)
        services = {
            package.COURIER: self._courier.find,
            json.name: json.find,
            HealthService.NAME: self._health.find,
            **dict.fromkeys(ReflectionService.NAMES, reflection.find),
        }
        options = _options(wanted, package.limit(house.max_bytes))
        self._server = grpc.server(self._pool, handlers=[_Router(services)], options=options)
        port = _bind(self._server, wanted)
        self.address = str(Endpoint(wanted.scheme, wanted.host, port))
        self._stopped: Any = None

    def open(self) -> None:
        """Begins to serve."""
        self._server.start()

    def tell_health(self) -> None:
        """The server's health has changed."""
        self._health.tell()

    def begin_stop(self, grace_s: float) -> None:
        """Takes no more calls. Those that run are cancelled after `grace_s`."""
        self._stopped = self._server.stop(grace_s)
        self._courier.end_stays()
        self._health.end_watches()

    def end_stop(self) -> None:
        """Cancels what is left, and waits until nothing is.

        Not so in a method that stops its own server, which has still to be answered: gRPC then
        cancels by itself what is left when the grace is over.
        """
        if threading.get_ident() in self._pool.busy:
            return
        if not self._stopped.is_set():
            self._stopped = self._server.stop(0)
        self._stopped.wait(_END_S)


class _Pool(Executor):
    """The threads of a house, as gRPC wants them."""

    def __init__(self, house: House) -> None:
        self._house = house
        self.busy: set[int] = set()  # idents of the threads that serve a call

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        job = _Job(lambda: fn(*args, **kwargs), self.busy)
        self._house.pool.submit(job)
        return job.future


class _Job:
    """One function for a thread of the pool."""

    is_waiting = False
    is_urgent = False
    caller = ""

    def __init__(self, fn: Callable[[], Any], busy: set[int]) -> None:
        self._fn = fn
        self._busy = busy
        self.future: Future[Any] = Future()

    def run(self) -> None:
        me = threading.get_ident()
        self._busy.add(me)
        try:
            self.future.set_result(self._fn())
        except BaseException as error:
            self.future.set_exception(error)
        finally:
            self._busy.discard(me)


class _Router(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Finds what serves a call by the first part of its path. Runs on gRPC's own thread."""

    def __init__(self, services: Mapping[str, Callable[[str, Any], Any]]) -> None:
        self._services = services

    def service(self, handler_call_details: Any) -> Any:
        path = handler_call_details.method
        find = self._services.get(path[1:].rpartition("/")[0])
        return find(path, handler_call_details.invocation_metadata) if find is not None else None


def _options(wanted: Endpoint, max_bytes: int) -> list[tuple[str, Any]]:
    return [
        *package.tune(wanted),
        ("grpc.so_reuseport", 0),  # else two servers share a port, and nobody notices
        ("grpc.max_receive_message_length", max_bytes + (64 << 10)),
        # Calls wait for a thread; gRPC would cancel some of them once there are a thousand.
        ("grpc.server.max_pending_requests", 1_000_000),
        ("grpc.server.max_pending_requests_hard_limit", 1_000_000),
        ("grpc.server_handshake_timeout_ms", 5000),
    ]


def _bind(server: Any, wanted: Endpoint) -> int:
    credentials = package.find_credentials(wanted)
    ip = endpoints.resolve(wanted, to_bind=True)[0][1][0]
    if credentials is None:
        endpoints.check_plaintext(wanted, ip)
    where = f"[{ip}]:{wanted.port}" if ":" in ip else f"{ip}:{wanted.port}"
    try:
        if credentials is None:
            return int(server.add_insecure_port(where))
        return int(server.add_secure_port(where, _server_credentials(credentials)))
    except RuntimeError as error:
        what = "a living server may have this address; stop it first, or use port 0"
        raise OSError(errno.EADDRINUSE, f"gRPC cannot listen here: {what}", str(wanted)) from error


def _server_credentials(credentials: Credentials) -> Any:
    pair = (credentials.key_pem, credentials.cert_pem)
    return grpc.ssl_server_credentials([pair], credentials.ca_pem, require_client_auth=True)
