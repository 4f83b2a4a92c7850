"""The server: serves methods at an address."""

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
    """Serves functions to clients in this and other processes.

    Example:
        server = Server("parameter-server", address="unix:/run/user/1000/ps.sock")
        server.bind("get", lambda key: table[key])
        server.start()
        ...
        server.stop()

    Methods run on the server's own threads, side by side: they need locks where they share state.
    A method may block, and may call this or any other server: the threads grow as needed. An
    exception goes to the caller and never ends the server.

    Args:
        name: what errors, threads and logs call it.
        address: `unix:/absolute/path`, `tcp:HOST:PORT` (with TLS, if the keyring has credentials for
            it; beyond loopback only so), `tcp+plaintext:HOST:PORT`, `inproc:anything`, or
            `grpc:HOST:PORT` and `grpc+plaintext:HOST:PORT`, as for `tcp`. Port 0 is any free one,
            which `address` has after the start. None is a socket in a fresh private directory,
            which `stop` removes.
        port: short for `address="tcp:localhost:PORT"`: for clients of this user on this host.
        also_at: more addresses at which it serves the same. `unix:` for clients on this host and
            `tcp:` for others; those of gRPC, which need `launchpad-graph[grpc]`, for callers in other
            languages, health probes and reflection.
        known_as: addresses by which clients find it, where a name or a gateway leads to one of its own.
            A deadlock of calls that wait for each other is detected only with them.
        token: clients must send it. None takes the keyring's for `address`, when it starts. There is
            one token for all addresses, whatever the keyring has for the others; only gRPC ones
            have their own, if it is there. Where any user of this host could connect, at `tcp:` and
            `grpc:` without credentials, a server without a token makes one: clients of the same user
            on this host find it by themselves, others need `Client(address, token=server.token)`.
        thread_pool_size: methods that run side by side as a rule. Those that block do not count.
        one_thread: runs all calls, one at a time; without it they run on the server's threads.
        max_bytes: the largest arguments of a call that it takes. Clients are sent it, and raise
            MessageTooLarge before they send more.

    Raises:
        ValueError: an address that is none, or a token that is too long.
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
        for each in also_at:
            if isinstance(also_at, str):
                raise ValueError(f"also_at={also_at!r} is to be a list of addresses, [{also_at!r}]")
            if each.startswith(network_address.INPROCESS):
                raise ValueError(
                    f"also_at={also_at!r} has an in-process address, which only the first one can be: "
                    f"Server(address={each!r}, also_at=…)"
                )
        self._wanted = (address, *also_at)
        for each in filter(_has_socket, self._wanted):
            transport.find(each)  # raises where the address is malformed
        self._addresses = self._wanted  # and from the start on with the ports that it got
        if token is not None and len(token) > keyring.MAX_TOKEN_BYTES:
            raise ValueError(f"a token is at most {keyring.MAX_TOKEN_BYTES} bytes")
        self._token = token
        self._size = thread_pool_size
        self._max_bytes = max_bytes
        self._known_as = tuple(known_as)
        self._methods = Dispatcher(self.name, address)
        self._methods.one_thread = one_thread
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
        """Where clients find it; fixed before it starts, but for a port that the system chooses."""
        return self._addresses[0]

    @property
    def port(self) -> int:
        """That of `address`, after the start where the system chooses; ValueError where it has none."""
        scheme = network_address.transport_of(self.address) or network_address.TCP
        return network_address.parse(self.address, scheme).port

    @property
    def addresses(self) -> list[str]:
        """`address`, and those that it is also at, in the order given."""
        return list(self._addresses)

    @property
    def token(self) -> bytes:
        """What clients have to show, once it has started; `b""` if nothing. For those on other hosts."""
        return b"" if self._core is None else self._core.token

    @property
    def has_started(self) -> bool:
        """Whether it has been started, and not been stopped since."""
        return self._core is not None and not self._stopped.is_set()

    @property
    def event_loop(self) -> EventLoop:
        """The one on which its async methods run; it ends when the server stops."""
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
        """Sets the answer to health checks. Calls are served all the same."""
        self._is_healthy = healthy
        for grpc_server in self._grpc_servers:
            grpc_server.notify_health()

    def drain(self) -> None:
        """Takes no more calls, and goes on with those it has; `stop` is still to come.

        For its clients it is then a server that is not up yet: they wait for the next one at this
        address. Health checks are answered.
        """
        if self._core is not None:
            self._core.is_draining = self._core.is_stopping = True
            for grpc_server in self._grpc_servers:
                grpc_server.notify_health()

    def stats(self) -> ServerStats:
        """The counts of its calls since it started, by method and by client.

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
        """Serves `fn` as `name`, from the next call on; replaces what was bound before.

        With `is_priority` its calls overtake those that wait for a thread, as with `courier.priority`.
        """
        self._methods.bind(name, fn, is_priority)

    def unbind(self, name: str) -> None:
        """Serves `name` no longer; KeyError if it was not bound."""
        self._methods.unbind(name)

    def bind_object(self, obj: object, *, exclude: Collection[str] = ()) -> None:
        """Serves the public methods of `obj`'s class, and `__call__` where it is defined.

        Not `run`, nothing that begins with an underscore, no property (none is evaluated), and no
        callable that merely is an attribute of the instance; unless its class has decorators (decorators.py).
        """
        warn_of_shadowed_methods(type(obj), exclude)
        for name, fn in public_methods(obj, exclude).items():
            self.bind(name, fn, has_priority(type(obj), name))

    def bind_fallback(
        self,
        fn: Callable[[str, tuple[Any, ...], dict[str, Any]], Any],
        list_methods: Callable[[], list[str]] | None = None,
    ) -> None:
        """Calls `fn(name, args, kwargs)` for every method that is not bound.

        `list_methods` returns their names, for listings and error messages.
        """
        self._methods.fallback = fn
        self._methods.fallback_names = list_methods

    def start(self) -> None:
        """Begins to serve.

        Raises:
            OSError: another server listens on the address.
            RuntimeError: it has been started already, or stopped.
        """
        with self._lock:
            if self._stopped.is_set():
                raise RuntimeError(
                    f"{self.name} has been stopped; make a new Server to serve again"
                )
            if self._core is not None:
                raise RuntimeError(f"{self.name} has been started already")
            token = keyring.find(self._wanted[0]) if self._token is None else self._token
            is_made = not token and _is_open_to_all_users(self._wanted)
            if is_made:
                known = filter(None, map(keyring.find, self._wanted))
                token = next(known, b"") or os.urandom(_TOKEN_BYTES)
            core = ServerCore(
                self.name,
                token,
                self._methods,
                self._size,
                self._max_bytes,
                trusts_this_user=is_made,
            )
            try:  # all addresses are there, and final, before the first call is served
                # Those of gRPC last: what it has bound it keeps until its server is stopped.
                order = sorted(enumerate(self._wanted), key=lambda each: transport.is_grpc(each[1]))
                opened = sorted((i, self._open(address, core)) for i, address in order)
                self._addresses = tuple(address for _, address in opened)
                if is_made:
                    self._publish(token)
                self._methods.addresses = (*self._addresses, *self._known_as)
                fork.drop_in_child(core)
                # Before its thread starts: the first call it serves may ask for its statistics or health.
                self._core = core
                core.pool.start_thread()
                if self._wanted[0].startswith(network_address.INPROCESS):
                    inprocess.publish(self._wanted[0], core.accept)
                for grpc_server in self._grpc_servers:
                    grpc_server.open()
            except BaseException:
                self._close(core, 0.0)
                self._core = None
                self._listeners = []
                self._grpc_servers = []
                self._published = []
                self._addresses = self._wanted
                raise

    def stop(self, grace_s: float = 1.0) -> None:
        """Stops serving; returns when no thread, socket or file is left.

        Calls that run have `grace_s` to finish and to be answered. Those that do not are given up:
        their callers get OutcomeUnknown, their threads go on as daemons until they return. May be
        called twice, from any thread, and from a method of this very server. In a forked child it
        does nothing: the server is the parent's.
        """
        self.stop_serving(grace_s)
        self._methods.loop.close()

    def stop_serving(self, grace_s: float = 1.0) -> None:
        """Does all that `stop` does but for the event loop, which goes on until `stop` is called.

        So what its object has made on the loop, as sessions and streams, can be closed there.
        """
        with self._lock:
            core = None if self._stopped.is_set() else self._core
            if core is not None and not core.is_inherited:
                self._close(core, grace_s)
            self._stopped.set()

    def join(self, timeout_s: float | None = None) -> bool:
        """Waits until the server has been stopped; False when that takes longer.

        In a forked child it returns at once: the server is the parent's.
        """
        return self._stopped.wait(timeout_s)

    def _drop_inherited(self) -> None:
        """For a forked child, which does not serve what its parent has started."""
        self._lock = threading.Lock()
        if self._core is not None:
            self._stopped = threading.Event()
            self._stopped.set()

    def _open(self, address: str, core: ServerCore) -> str:
        """Makes what serves at this address; returns the address with the port that it got."""
        if transport.is_grpc(address):
            make = transport.load(_GRPC_SERVER)
            own = keyring.find(address) if self._token is None else b""
            self._grpc_servers.append(make(address, core, own or core.token, lambda: self.health))
            return str(self._grpc_servers[-1].address)
        if not _has_socket(address):
            return address
        listener = transport.find(address).listen(address)
        self._listeners.append(listener)
        core.poller.listen(listener)
        return listener.address

    def _publish(self, token: bytes) -> None:
        """Leaves the token where clients of this user find it, before the first of them is answered."""
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
                what = f"{error.strerror}. Or give the server a token: Server(token=…)"
                raise PermissionError(error.errno, what, error.filename) from error

    def _close(self, core: ServerCore, grace_s: float) -> None:
        for published in self._published:
            published.remove()
        for grpc_server in self._grpc_servers:
            grpc_server.begin_stop(grace_s)
        core.is_draining = False
        core.poller.stop_accepting()
        for listener in self._listeners:
            listener.close()
        inprocess.withdraw(self._wanted[0], core.accept)
        core.close(grace_s)
        for grpc_server in self._grpc_servers:
            grpc_server.end_stop()

    # The names that dm-launchpad gives them.
    Bind = bind
    Unbind = unbind
    Stop = stop
    Join = join
    SetIsHealthy = set_is_healthy

    def _start_once(self) -> None:
        """`start`, unless it has been started: its node does that, too."""
        if self._core is None:
            self.start()

    Start = _start_once


def _is_open_to_all_users(addresses: Collection[str]) -> bool:
    """Whether any user of this host can connect to one of them, and has not to show a certificate.

    Where plaintext was asked for by name, all who can connect are meant to.
    """
    on_network = [address for address in addresses if network_address.transport_of(address)]
    without_tls = [address for address in on_network if keyring.find_credentials(address) is None]
    return bool(without_tls) and not any(map(network_address.is_plaintext, on_network))


def _has_socket(address: str) -> bool:
    """Whether it is served on a socket of ours."""
    return not address.startswith(network_address.INPROCESS) and not transport.is_grpc(address)
