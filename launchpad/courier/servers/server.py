"""The server: serves methods at an address."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from launchpad.courier import carriers
from launchpad.courier.carriers import inprocess, unix
from launchpad.courier.carriers.sockets import Listener
from launchpad.courier.protocol import wire
from launchpad.courier.servers.house import House
from launchpad.courier.servers.methods import HEALTH, STATS, Methods
from launchpad.courier.servers.served import public_methods
from launchpad.courier.trust import keyring

if TYPE_CHECKING:
    from launchpad.courier.over_grpc.door import Door
    from launchpad.courier.watching.call_stats import ServerStats


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
            which `address` tells after the start. None is a socket in a fresh private directory,
            which `stop` removes.
        also_at: more addresses at which it serves the same. `unix:` for clients on this host and
            `tcp:` for others; those of gRPC, which need `launchpad[grpc]`, for callers in other
            languages, health probes and reflection.
        known_as: addresses by which clients find it, where a name or a gateway leads to one of its own.
            A ring of calls that wait for each other is seen only if it knows them.
        token: clients must show it. None asks the keyring for `address`, when it starts. There is
            one token for all addresses, whatever the keyring has for the others; only gRPC ones
            have their own, if it is there.
        thread_pool_size: methods that run side by side as a rule. Those that block do not count.
        max_bytes: the largest arguments of a call that it takes. Clients know, and raise
            MessageTooLarge before they send more.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        address: str | None = None,
        token: bytes | None = None,
        thread_pool_size: int = 16,
        max_bytes: int = wire.MAX_BYTES,
        also_at: Sequence[str] = (),
        known_as: Sequence[str] = (),
    ) -> None:
        self.name = name or "courier"
        self._address = address or unix.PREFIX + unix.fresh_path()
        self._is_in_process = self._address.startswith(inprocess.PREFIX)
        if not carriers.is_grpc(self._address) and not self._is_in_process:
            carriers.find(self._address)
        _check_also_at(also_at)
        self._wanted = (self._address, *also_at)
        self._addresses = self._wanted  # and from the start on with the ports that it got
        if token is not None and len(token) > keyring.MAX_TOKEN_BYTES:
            raise ValueError(f"a token is at most {keyring.MAX_TOKEN_BYTES} bytes")
        self._token = token
        self._size = thread_pool_size
        self._max_bytes = max_bytes
        self._known_as = tuple(known_as)
        self._methods = Methods(self.name, self._address)
        self._lock = threading.Lock()
        self._listeners: list[Listener] = []
        self._house: House | None = None
        self._doors: list[Door] = []
        self._is_healthy = True
        self._stopped = threading.Event()
        self._stop_lock = threading.Lock()
        self._methods.bind(HEALTH.decode(), lambda: self.health)
        self._methods.bind(STATS.decode(), self.stats)

    @property
    def address(self) -> str:
        """Where clients find it; known before it starts, but for a port that the system chooses."""
        return self._addresses[0]

    @property
    def addresses(self) -> list[str]:
        """`address`, and those that it is also at, in the order given."""
        return list(self._addresses)

    @property
    def has_started(self) -> bool:
        """It has been started, and not been stopped since."""
        return self._house is not None and not self._stopped.is_set()

    @property
    def health(self) -> str:
        """`serving`, `not serving` or `draining`: what health checks hear."""
        if self._house is not None and self._house.is_draining:
            return "draining"
        return "serving" if self.is_healthy else "not serving"

    @property
    def is_healthy(self) -> bool:
        return self._is_healthy and self.has_started

    def set_is_healthy(self, healthy: bool) -> None:
        """What health checks shall hear. Calls are served all the same."""
        self._is_healthy = healthy
        self._tell_health()

    def drain(self) -> None:
        """Takes no more calls, and goes on with those it has; `stop` is still to come.

        To its clients it then is a server that is not up yet: they wait for the next one at this
        address. Health checks are answered.
        """
        if self._house is not None:
            self._house.is_draining = self._house.is_stopping = True
            self._tell_health()

    def stats(self) -> ServerStats:
        """What it has counted of its calls since it started, by method and by client.

        Example:
            print(server.stats())                   # a table
            server.stats().methods["step"].p99_s
        """
        from launchpad.courier.watching import call_stats

        return call_stats.of_server(self.name, self.address, self._house)

    def bind(self, name: str, fn: Callable[..., Any]) -> None:
        """Serves `fn` as `name`, from the next call on; replaces what was bound before."""
        self._methods.bind(name, fn)

    def unbind(self, name: str) -> None:
        """Serves `name` no longer; KeyError if it was not bound."""
        self._methods.unbind(name)

    def bind_object(self, obj: object, *, exclude: Collection[str] = ()) -> None:
        """Serves the public methods of `obj`'s class, and `__call__` where it is defined.

        Not `run`, nothing that begins with an underscore, no property (none is evaluated), and no
        callable that merely is an attribute of the instance; unless its class says so (served.py).
        """
        for name, fn in public_methods(obj, exclude).items():
            self.bind(name, fn)

    def bind_fallback(
        self,
        fn: Callable[[str, tuple[Any, ...], dict[str, Any]], Any],
        list_methods: Callable[[], list[str]] | None = None,
    ) -> None:
        """Calls `fn(name, args, kwargs)` for every method that is not bound.

        `list_methods` says which names those are, for listings and error messages.
        """
        self._methods.bind_fallback(fn, list_methods)

    def start(self) -> None:
        """Begins to serve. Raises OSError when a living server has the address."""
        with self._lock:
            if self._stopped.is_set():
                raise RuntimeError(
                    f"{self.name} has been stopped; make a new Server to serve again"
                )
            if self._house is not None:
                raise RuntimeError(f"{self.name} has been started already")
            token = keyring.find(self._address) if self._token is None else self._token
            with contextlib.ExitStack() as opened:
                listeners = [_listen(each, opened) for each in self._wanted if _has_socket(each)]
                house = House(
                    self.name, token, self._methods, self._size, listeners, self._max_bytes
                )
                opened.pop_all()
            self._listeners = listeners
            self._open(house)

    def stop(self, grace_s: float = 1.0) -> None:
        """Stops serving; returns when no thread, socket or file is left.

        Calls that run have `grace_s` to finish and to be answered. Those that do not are given up:
        their callers get OutcomeUnknown, their threads go on as daemons until they return. Those that
        run in a thread of their caller's cannot be given up, and end as any call does. May be
        called twice, from any thread, and from a method of this very server.
        """
        with self._stop_lock:
            if self._stopped.is_set():
                return
            with self._lock:
                house, listeners = self._house, self._listeners
            for door in self._doors:
                door.begin_stop(grace_s)
            if listeners and house is not None:
                house.is_draining = False
                house.stop_accepting()
                for listener in listeners:
                    listener.close()
            if house is not None:
                inprocess.withdraw(self._address, house)
                house.close(grace_s)
            for door in self._doors:
                door.end_stop()
            self._stopped.set()

    def join(self, timeout_s: float | None = None) -> bool:
        """Waits until the server has been stopped; False when that takes longer."""
        return self._stopped.wait(timeout_s)

    def _open(self, house: House) -> None:
        """All addresses are there, and known, before the first call is served."""
        try:
            self._bind_doors(house)
            self._addresses = self._real_addresses()
            self._methods.addresses = (*self._addresses, *self._known_as)
            house.open()
            self._house = house
            if self._is_in_process:
                inprocess.publish(self._address, house)
            for door in self._doors:
                door.open()
        except BaseException:
            self._close_half_open(house)
            raise

    def _bind_doors(self, house: House) -> None:
        """Those of gRPC, each with a token of its own if the keyring has one for it."""
        addresses = [address for address in self._wanted if carriers.is_grpc(address)]
        if not addresses:
            return
        from launchpad.courier.over_grpc.door import Door

        for address in addresses:
            own = keyring.find(address) if self._token is None else b""
            self._doors.append(Door(address, house, own or house.token, lambda: self.health))

    def _real_addresses(self) -> tuple[str, ...]:
        """Ports that the system has chosen are known by now."""
        listeners, doors = iter(self._listeners), iter(self._doors)

        def find(address: str) -> str:
            if _has_socket(address):
                return next(listeners).address
            return next(doors).address if carriers.is_grpc(address) else address

        return tuple(find(address) for address in self._wanted)

    def _close_half_open(self, house: House) -> None:
        """Undoes a start that has failed."""
        for door in self._doors:
            door.begin_stop(0.0)
        house.stop_accepting()
        for listener in self._listeners:
            listener.close()
        inprocess.withdraw(self._address, house)
        house.close(0.0)
        for door in self._doors:
            door.end_stop()
        self._house, self._listeners, self._doors = None, [], []
        self._addresses = self._wanted

    def _tell_health(self) -> None:
        for door in self._doors:
            door.tell_health()

    # The names that dm-launchpad gives them.
    Bind = bind
    Unbind = unbind
    Start = start
    Stop = stop
    Join = join
    SetIsHealthy = set_is_healthy


def _has_socket(address: str) -> bool:
    """One of ours."""
    return not address.startswith(inprocess.PREFIX) and not carriers.is_grpc(address)


def _listen(address: str, opened: contextlib.ExitStack) -> Listener:
    """A listener, closed again if what follows fails."""
    listener = carriers.find(address).Listener(address)
    opened.callback(listener.close)
    return listener


def _check_also_at(addresses: Sequence[str]) -> None:
    """A mistake is an error where it was made, not when the server starts."""
    for address in addresses:
        if isinstance(addresses, str):
            raise ValueError(f"also_at={addresses!r} is to be a list of addresses, [{addresses!r}]")
        if address.startswith(inprocess.PREFIX):
            raise ValueError(
                f"also_at={addresses!r} has an in-process address, which only the first one can be: "
                f"Server(address={address!r}, also_at=…)"
            )
        if not carriers.is_grpc(address):
            carriers.find(address)
