"""The server, which serves methods at one or more addresses."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from launchpad.courier import fork, transport
from launchpad.courier.interruptions import Lock
from launchpad.courier.protocol import framing
from launchpad.courier.protocol.framing import HEALTH, STATS
from launchpad.courier.security import keyring
from launchpad.courier.security.published_token import PublishedToken
from launchpad.courier.server.core import ServerCore
from launchpad.courier.server.decorators import (
    has_priority,
    public_methods,
    warn_of_shadowed_methods,
)
from launchpad.courier.server.dispatcher import Dispatcher
from launchpad.courier.server.event_loop import EventLoop
from launchpad.courier.transport import inprocess, network_address, unix
from launchpad.courier.transport.stream_socket import Listener

if TYPE_CHECKING:
    from launchpad.courier.server.one_thread import OneThread
    from launchpad.courier.telemetry.call_stats import ServerStats


_TOKEN_BYTES = 32
_GRPC_SERVER = "launchpad.courier.grpc.server:GrpcServer"


class Server:
    """A server of functions, for clients in this and other processes.

    Example:
        server = Server("parameter-server", address="unix:/run/user/1000/ps.sock")
        server.bind("get", lambda key: table[key])
        server.start()
        ...
        server.stop()

    Methods run concurrently, on the server's own threads, so they need locks where they share state.
    A method may block, and it may call this or any other server: the server starts more threads as
    needed. If a method raises an exception, the caller gets the exception, and the server goes on.

    Args:
        name: the server's name in errors, logs and the names of its threads.
        address: `unix:/absolute/path`, `tcp:HOST:PORT` (with TLS if the keyring has credentials for it,
            which is required beyond loopback), `tcp+plaintext:HOST:PORT`, `inproc:anything`, or
            `grpc:HOST:PORT` and `grpc+plaintext:HOST:PORT`, which work like their `tcp` counterparts.
            With port 0 the system chooses a free port. `server.address` has that port once the server
            has started. With None the server makes a socket in a new private directory, which `stop`
            removes.
        port: short for `address="tcp:localhost:PORT"`, for clients of this user on this host.
        also_at: more addresses at which the server serves the same methods: `unix:` for clients on
            this host, `tcp:` for clients elsewhere, and gRPC addresses for callers in other languages,
            health probes and reflection. gRPC addresses need `launchpad-graph[grpc]`.
        known_as: other addresses that clients use, if a name or a gateway there leads to one of the
            server's own addresses. Deadlocks of calls made through an address that isn't given here go
            undetected.
        token: the token that clients must send. With None, the server takes the keyring's token for
            `address` when it starts. The server has one token for all addresses, whatever the keyring
            has for the others. Only a gRPC address uses its own token, if the keyring has one. If any
            user of this host could connect (`tcp:` and `grpc:` without credentials), a server without
            a token makes one. Clients of the same user on this host find that token by themselves.
            Other clients need `Client(address, token=server.token)`.
        thread_pool_size: the number of methods that normally run at once. Blocked methods don't count.
        one_thread: runs all calls, one at a time. Without it, calls run on the server's threads.
        max_bytes: the largest arguments that one call may have. The server sends this limit to its
            clients, and they raise MessageTooLarge before they send more.

    Raises:
        ValueError: an address is malformed, or the token is too long.
    """

    def __init__(
        self,
        name: str | None = None,
        port: int | None = None,
        *,
        address: str | None = None,
        token: bytes | None = None,
        thread_pool_size: int = 16,
        max_bytes: int = framing.MAX_BYTES,
        also_at: Sequence[str] = (),
        known_as: Sequence[str] = (),
        one_thread: OneThread | None = None,
    ) -> None:
        self.name = name or "courier"
        if port is not None:
            if address is not None:
                raise ValueError(
                    f"port={port} is short for address='tcp:localhost:{port}'; give one of them"
                )
            address = f"{network_address.TCP}:localhost:{port}"
        address = address or unix.PREFIX + unix.fresh_path()
        for other_address in also_at:
            if isinstance(also_at, str):
                raise ValueError(f"also_at={also_at!r} must be a list of addresses, [{also_at!r}]")
            if other_address.startswith(network_address.INPROCESS):
                raise ValueError(
                    f"also_at={also_at!r} has an in-process address, which only the first one can be: "
                    f"Server(address={other_address!r}, also_at=…)"
                )
        self._requested_addresses = (address, *also_at)
        for own_address in filter(_has_socket, self._requested_addresses):
            transport.find(own_address)  # raises if the address is malformed
        # Once the server has started, these have the ports that the system chose.
        self._addresses = self._requested_addresses
        if token is not None and len(token) > keyring.MAX_TOKEN_BYTES:
            raise ValueError(f"a token is at most {keyring.MAX_TOKEN_BYTES} bytes")
        self._token = token
        self._size = thread_pool_size
        self._max_bytes = max_bytes
        self._known_as = tuple(known_as)
        self._methods = Dispatcher(self.name, address)
        self._methods.one_thread = one_thread
        # This lock is held to start and to stop, so that `stop` never finds a server that has half started.
        self._lock = Lock()
        self._listeners: list[Listener] = []
        self._core: ServerCore | None = None
        self._grpc_servers: list[Any] = []  # each a `grpc.server.GrpcServer`
        self._published: list[PublishedToken] = []
        self._is_healthy = True
        self._stopped = threading.Event()
        fork.call_in_child(self, type(self)._drop_inherited)
        self._methods.bind(HEALTH.decode(), lambda: self.health)
        self._methods.bind(STATS.decode(), self.stats)

    @property
    def address(self) -> str:
        """The first address at which clients find the server.

        It is known before the server starts, except for a port that the system chooses.
        """
        return self._addresses[0]

    @property
    def port(self) -> int:
        """The port of `address`. Raises ValueError if the address has no port.

        A port that the system chooses is known once the server has started.
        """
        scheme = network_address.transport_of(self.address) or network_address.TCP
        return network_address.parse(self.address, scheme).port

    @property
    def addresses(self) -> list[str]:
        """All addresses of the server: `address`, then those of `also_at`, in the order given."""
        return list(self._addresses)

    @property
    def token(self) -> bytes:
        """The token that clients must send; `b""` if they need no token, or before the server starts.

        Give the token to clients on other hosts, which can't find it by themselves.
        """
        return b"" if self._core is None else self._core.token

    @property
    def has_started(self) -> bool:
        """True if the server was started and has not been stopped since."""
        return self._core is not None and not self._stopped.is_set()

    @property
    def event_loop(self) -> EventLoop:
        """The event loop that runs the server's async methods. The loop ends when the server stops."""
        return self._methods.loop

    @property
    def health(self) -> str:
        """`serving`, `not serving` or `draining`: the answer to health checks."""
        if self._core is not None and self._core.is_draining:
            return "draining"
        return "serving" if self.is_healthy else "not serving"

    @property
    def is_healthy(self) -> bool:
        return self._is_healthy and self.has_started

    def set_is_healthy(self, healthy: bool) -> None:
        """Set the answer to health checks. The server goes on serving calls either way."""
        self._is_healthy = healthy
        for grpc_server in self._grpc_servers:
            grpc_server.notify_health()

    def drain(self) -> None:
        """Begin no more calls, but finish those that have begun. Call `stop` afterwards.

        From then on clients treat the server as not up: they wait for the next server at this address. The
        server still answers health checks.
        """
        if self._core is not None:
            # Set `is_draining` first: with `is_stopping` alone, the server would hang up new connections,
            # and so answer no health checks on them.
            self._core.is_draining = True
            self._core.is_stopping = True
            for grpc_server in self._grpc_servers:
                grpc_server.notify_health()

    def stats(self) -> ServerStats:
        """Return the counts of the server's calls since it started, by method and by client.

        Example:
            print(server.stats())                   # a table
            server.stats().methods["step"].p99_s
        """
        from launchpad.courier.telemetry import call_stats

        core = self._core
        if core is None:
            return call_stats.ServerStats(self.name, self.address, "", 0.0, 0, {}, {})
        edges = call_stats.read_edges(core.counts)
        return call_stats.ServerStats(
            name=self.name,
            address=self.address,
            incarnation=core.incarnation.hex(),
            uptime_s=time.monotonic() - core.began,
            connections=len(core.connections),
            methods=call_stats.total(edges),
            edges=edges,
        )

    def bind(self, name: str, fn: Callable[..., Any], is_priority: bool = False) -> None:
        """Serve `fn` as `name` from the next call on. It replaces what was bound to the name before.

        With `is_priority`, its calls overtake calls that wait for a thread, as with `courier.priority`.
        """
        self._methods.bind(name, fn, is_priority)

    def unbind(self, name: str) -> None:
        """Stop serving `name`. Raise KeyError if the name was not bound."""
        self._methods.unbind(name)

    def bind_object(self, obj: object, *, exclude: Collection[str] = ()) -> None:
        """Serve the public methods of `obj`'s class, and `__call__` if the class defines it.

        The server leaves out `run`, names that begin with an underscore, properties (which it doesn't
        evaluate), and callables that are only attributes of the instance. Decorators on the class change
        this (decorators.py).
        """
        warn_of_shadowed_methods(type(obj), exclude)
        for name, fn in public_methods(obj, exclude).items():
            self.bind(name, fn, has_priority(type(obj), name))

    def bind_fallback(
        self,
        fn: Callable[[str, tuple[Any, ...], dict[str, Any]], Any],
        list_methods: Callable[[], list[str]] | None = None,
    ) -> None:
        """Call `fn(name, args, kwargs)` to answer calls of methods that are not bound.

        `list_methods` returns the names of these methods, for listings and error messages.
        """
        self._methods.fallback = fn
        self._methods.fallback_names = list_methods

    def start(self) -> None:
        """Start serving.

        Raises:
            OSError: another server listens on the address.
            RuntimeError: the server was started or stopped before.
        """
        with self._lock:
            if self._stopped.is_set():
                raise RuntimeError(
                    f"{self.name} has been stopped; make a new Server to serve again"
                )
            if self._core is not None:
                raise RuntimeError(f"{self.name} has been started already")
            token = self._token
            if token is None:
                token = keyring.find(self._requested_addresses[0])
            makes_token = not token and _is_open_to_all_users(self._requested_addresses)
            if makes_token:
                tokens = filter(None, map(keyring.find, self._requested_addresses))
                token = next(tokens, b"") or os.urandom(_TOKEN_BYTES)
            core = ServerCore(
                self.name,
                token,
                self._methods,
                self._size,
                self._max_bytes,
                trusts_this_user=makes_token,
            )
            # All addresses exist, and are final, before the server serves the first call.
            try:
                # gRPC addresses come last: gRPC keeps an address bound until its server stops.
                order = sorted(
                    enumerate(self._requested_addresses),
                    key=lambda item: transport.is_grpc(item[1]),
                )
                opened = sorted((i, self._open(address, core)) for i, address in order)
                self._addresses = tuple(address for _, address in opened)
                if makes_token:
                    self._publish(token)
                self._methods.addresses = (*self._addresses, *self._known_as)
                fork.drop_in_child(core)
                # Set this before the thread starts: the first call may ask for the server's statistics
                # or its health.
                self._core = core
                core.pool.start_thread()
                if self._requested_addresses[0].startswith(network_address.INPROCESS):
                    inprocess.publish(self._requested_addresses[0], core.accept)
                for grpc_server in self._grpc_servers:
                    grpc_server.open()
            except BaseException:
                self._close(core, 0.0)
                self._core = None
                self._listeners = []
                self._grpc_servers = []
                self._published = []
                self._addresses = self._requested_addresses
                raise

    def stop(self, grace_s: float = 1.0) -> None:
        """Stop serving. Return when no thread, socket or file is left.

        Running calls have `grace_s` seconds to finish and to be answered. The server gives up calls that
        take longer: their callers get OutcomeUnknown, and their threads go on as daemons until the
        methods return. `stop` may be called twice, from any thread, and from a method of this server. In
        a forked child it does nothing, because the server belongs to the parent.
        """
        self.stop_serving(grace_s)
        self._methods.loop.close()

    def stop_serving(self, grace_s: float = 1.0) -> None:
        """Do all that `stop` does, but leave the event loop running until `stop` is called.

        So the served object can still close what it made on the loop, such as sessions and streams.
        """
        with self._lock:
            core = None if self._stopped.is_set() else self._core
            if core is not None and not core.is_inherited:
                self._close(core, grace_s)
            self._stopped.set()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until the server has been stopped. Return False if that takes longer than the timeout.

        In a forked child `join` returns at once, because the server belongs to the parent.
        """
        return self._stopped.wait(timeout_s)

    def _drop_inherited(self) -> None:
        """Mark the server as stopped in a forked child, because only the parent serves."""
        self._lock = threading.Lock()
        if self._core is not None:
            self._stopped = threading.Event()
            self._stopped.set()

    def _open(self, address: str, core: ServerCore) -> str:
        """Start listening at this address. Return the address with the port that the system chose."""
        if transport.is_grpc(address):
            make = transport.load(_GRPC_SERVER)
            own_token = keyring.find(address) if self._token is None else b""
            self._grpc_servers.append(
                make(address, core, own_token or core.token, lambda: self.health)
            )
            return str(self._grpc_servers[-1].address)
        if not _has_socket(address):
            return address
        listener = transport.find(address).listen(address)
        self._listeners.append(listener)
        core.poller.listen(listener)
        return listener.address

    def _publish(self, token: bytes) -> None:
        """Publish the token for clients of this user. Call this before the server answers any client."""
        places = [
            listener.sock.getsockname()
            for listener in self._listeners
            if listener.address.startswith(network_address.TCP)
        ]
        for server in self._grpc_servers:
            endpoint = network_address.parse(server.address, network_address.GRPC)
            places += [where for _, where in network_address.resolve(endpoint, to_bind=True)]
        for ip, port, *_ in places:
            try:
                self._published.append(PublishedToken(ip, port, token))
            except PermissionError as error:
                advice = f"{error.strerror}. Or give the server a token: Server(token=…)"
                raise PermissionError(error.errno, advice, error.filename) from error

    def _close(self, core: ServerCore, grace_s: float) -> None:
        for grpc_server in self._grpc_servers:
            grpc_server.begin_stop(grace_s)
        core.is_draining = False
        core.poller.stop_accepting()
        for listener in self._listeners:
            listener.close()
        inprocess.withdraw(self._requested_addresses[0], core.accept)
        core.close(grace_s)
        for grpc_server in self._grpc_servers:
            grpc_server.end_stop()
        # Only now: a client that connects while the server stops must find the token. Without it, the client
        # would be refused for good, instead of waiting for the next server.
        for published in self._published:
            published.remove()

    # The names of these methods in dm-launchpad.
    Bind = bind
    Unbind = unbind
    Stop = stop
    Join = join
    SetIsHealthy = set_is_healthy

    def _start_once(self) -> None:
        """Start the server, unless its node has done so already."""
        if self._core is None:
            self.start()

    Start = _start_once


def _is_open_to_all_users(addresses: Collection[str]) -> bool:
    """Return True if any user of this host can connect to one of these addresses without a certificate.

    Return False if an address asks for plaintext by name, because the server is then meant for everyone who
    can connect.
    """
    on_network = [address for address in addresses if network_address.transport_of(address)]
    without_tls = [address for address in on_network if keyring.find_credentials(address) is None]
    return bool(without_tls) and not any(map(network_address.is_plaintext, on_network))


def _has_socket(address: str) -> bool:
    """Return True if the address has a socket of courier's own. In-process and gRPC addresses don't."""
    return not address.startswith(network_address.INPROCESS) and not transport.is_grpc(address)
