"""The client, which calls the methods of a server as if they were its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NoReturn

from launchpad.courier import caller
from launchpad.courier.call_stack import Edge
from launchpad.courier.client.channel import Channel, channel_to
from launchpad.courier.client.options import OPTION_NAMES, Options
from launchpad.courier.client.server_info import ServerInfo
from launchpad.courier.errors import CourierError
from launchpad.courier.explained import hint_for
from launchpad.courier.protocol import framing
from launchpad.courier.security import keyring
from launchpad.courier.telemetry import registry
from launchpad.courier.transport import network_address

if TYPE_CHECKING:
    from concurrent.futures import Future

    from typing_extensions import TypeVar  # every type checker includes this package

    from launchpad.courier.client.aio import AioCall
    from launchpad.courier.telemetry.call_stats import ClientStats, ServerStats
    from launchpad.courier.transport.inprocess import Process
    from launchpad.courier.transport.link import Link

    T = TypeVar("T", default=Any)  # `Client` alone is `Client[Any]`
else:
    from typing import TypeVar

    T = TypeVar("T")

R = TypeVar("R")

_LISTING_S = 1.0
"""Seconds that `dir(client)`, and so completion in a notebook, may wait for the server."""


class Method(partial[Any]):
    """A bound remote method. Call it; using it as a bool raises TypeError."""

    __slots__ = ()

    def __bool__(self) -> NoReturn:
        raise TypeError(f"{self!r} is always there, and is neither true nor false: call it")

    def __repr__(self) -> str:
        return f"<method {self.args[-1].decode()!r} of a courier server>"

    # Hide this from type checkers, which would otherwise accept any attribute.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            from launchpad.courier.client.other_names import METHOD

            # In `client.future.step(batch)`, the other system's name is that of the method.
            own_name = self.args[-1].decode()
            hint = METHOD.get(name) or METHOD.get(own_name)
            use = f" Use {hint}." if hint else ""
            raise AttributeError(f"{self!r} has no attribute {name!r}.{use}")


class Methods(Generic[R]):
    """The methods of a server, all called in one way: `client.futures.step(batch)`."""

    def __init__(self, call: Callable[..., R]) -> None:
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        return self._call(b"__call__", *args, **kwargs)

    def __getattr__(self, name: str) -> Callable[..., R]:
        # `copy`, `pickle` and `inspect` look up such names on every object. They don't mean to make a call.
        if name.startswith("_"):
            raise AttributeError(
                f"a courier client has no {name!r}: remote names have no underscore"
            )
        encoded = name.encode()
        if len(encoded) > framing.MAX_NAME:
            raise AttributeError(
                f"a method name of {len(encoded)} bytes; the limit is {framing.MAX_NAME}"
            )
        method = Method(self._call, encoded)
        # From now on Python finds the method in the instance and doesn't call `__getattr__`.
        self.__dict__[name] = method
        return method


class Client(Methods[Any], Generic[T]):
    """A client of a server: it calls the server's methods as if they were its own.

    Example:
        with Client("unix:/run/user/1000/learner.sock") as learner:
            loss = learner.step(batch)                              # waits for the answer
            futures = [learner.futures.step(b) for b in batches]    # returns at once
            losses = [future.result() for future in futures]

    With `Client[Learner](…)` type checkers treat `learner` as a Learner: see `courier.typed`.

    A call runs at most once. It blocks only the calling thread, and any number of threads may share a
    client. The call returns the method's result, or raises an error: the method's own exception, with the
    remote traceback as `__cause__`, or a CourierError that says what is known about the call. The first
    call connects.

    Clients can be pickled (without token and failure_check). They hash and compare by address. If the
    server can move, they hash and compare by the callable that returns its address.

    Some names belong to the client itself: `address`, `aio`, `futures`, `stats`, `with_options`. Call a
    remote method with one of these names as `client.futures.address()`.

    Args:
        address: The address of the server: `unix:/absolute/path`, `tcp:HOST:PORT`,
            `tcp+plaintext:HOST:PORT`, `inproc:anything`, `grpc:HOST:PORT` or `grpc+plaintext:HOST:PORT`;
            `localhost:PORT` is short for `tcp:localhost:PORT`. For a server that can move, give a callable
            that returns its current address (`unix:` and `tcp:` only), or "" while the address is
            unknown. The client calls it before each call, from any thread, so it must be quick. If it
            raises an exception, the call raises that exception.
        compress: If True, arguments and results are compressed on the way, which helps on slow networks.
        call_timeout: Seconds that a call may take, including the wait for the server. After that time the
            call raises DeadlineExceeded. None means no limit.
        wait_for_ready: If True, a call made before the server is up waits for the server. If False, the
            call raises NotSent at once.
        name: The name of the server in errors, until the server gives its own name in the handshake.
        token: The token to show to the server. None means that the client asks the keyring for the
            token of the address.
        failure_check: A function that the client calls while a call waits for a server that is not up,
            and when a connection ends. If the function returns an exception, the call stops waiting and
            raises it.
        max_bytes: The size of the largest result that the client accepts. A larger result raises
            MessageTooLarge.
        idempotent: The names of methods that may run twice, so that courier may repeat calls of them.
        link: For tests: a simulated slow network for the client's messages. See `transport/link.py`.

    Raises:
        ValueError: The token is too long, the address is not valid, or `link` is set for a grpc: address.
    """

    _futures: Methods[Future[Any]] | None = None
    _aio: Methods[AioCall] | None = None

    def __init__(
        self,
        address: str | Callable[[], str],
        compress: bool = False,
        call_timeout: float | None = None,
        wait_for_ready: bool = True,
        *,
        name: str | None = None,
        token: bytes | None = None,
        failure_check: Callable[[], Exception | None] | None = None,
        max_bytes: int = framing.MAX_BYTES,
        idempotent: Collection[str] = (),
        link: Link | None = None,
    ) -> None:
        if isinstance(address, str):
            address = network_address.with_scheme(address)
        self._source = address  # or a callable that returns it
        self._name = name
        if token is not None and len(token) > keyring.MAX_TOKEN_BYTES:
            raise ValueError(f"a token is at most {keyring.MAX_TOKEN_BYTES} bytes")
        peer = ServerInfo(
            address,
            name=name,
            token=token,
            failure_check=failure_check,
            max_bytes=max_bytes,
            idempotent=frozenset(name.encode() for name in idempotent),
            fetch_waits=_fetch_waits,
            link=link,
        )
        options = Options(call_timeout, wait_for_ready, compress=compress)
        self._channel = channel_to(peer, options)
        registry.add_client(peer.labels, self._channel.counts)
        super().__init__(self._channel.call)

    @property
    def address(self) -> str:
        """The current address of the server; "" if the address is not known yet."""
        return self._channel.peer.locate()

    @property
    def futures(self) -> Methods[Future[Any]]:
        """The server's methods, each returning a `concurrent.futures.Future` at once.

        `cancel` works until the answer has arrived. A cancelled call that the server has not begun never
        runs. Callbacks run one after the other, on a thread of their own, and may wait for other futures. If
        a callback blocks, another thread runs the rest.
        """
        if self._futures is None:
            self._futures = Methods(self._channel.submit)
        return self._futures

    @property
    def aio(self) -> Methods[AioCall]:
        """The server's methods as coroutines: await each once, or give it to `asyncio.create_task`.

        Example:
            losses = await asyncio.gather(*(learner.aio.step(batch) for batch in batches))
        """
        if self._aio is None:
            from launchpad.courier.client.aio import AioCall

            self._aio = Methods(partial(AioCall, self._channel))
        return self._aio

    def with_options(self, **changes: Any) -> Client[T]:
        """Return a client with other options and the same connections, for one call or many.

        Example:
            table = parameters.with_options(timeout_s=2.0, idempotent=True).get("embedding")

        Raises:
            TypeError: there is no such option; see `client/options.py`.
        """
        unknown = [name for name in changes if name not in OPTION_NAMES]
        if unknown:
            hint = hint_for(
                unknown[0], OPTION_NAMES, "launchpad.courier.client.other_names:OPTIONS"
            )
            raise TypeError(f"with_options() takes no argument {unknown[0]!r}.{hint}")
        view = object.__new__(type(self))
        view._source = self._source
        view._name = self._name
        view._channel = self._channel.with_options(replace(self._channel.options, **changes))
        view._call = view._channel.call
        return view

    def stats(self) -> ClientStats:
        """Return the client's counts of its own calls so far, by method.

        Example:
            print(learner.stats())                  # a table
            learner.stats().methods["step"].p99_s
        """
        return stats(self)

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_"):
            raise AttributeError(
                f"{self!r} has no attribute {name!r} to set: that would change nothing at the server. "
                "Let the server have a method for it, and call that."
            )
        self.__dict__[name] = value

    def __dir__(self) -> list[str]:
        """Return the names of the client's own methods, and the server's names if it answers soon."""
        own_names = ["address", "aio", "futures", "stats", "with_options"]
        view: Any = self.with_options(timeout_s=_LISTING_S, wait_for_ready=False)
        try:
            return [*own_names, *list_methods(view)]
        except CourierError:
            return own_names

    def __enter__(self) -> T:  # type checkers take the client for a T
        return self  # type: ignore[return-value]

    def __exit__(self, *_: object) -> None:
        close(self)

    def __reduce__(self) -> tuple[Any, ...]:
        idempotent = tuple(name.decode() for name in self._channel.peer.idempotent)
        peer = self._channel.peer
        options = self._channel.options
        return _rebuild, (
            self._source,
            self._name,
            options,
            idempotent,
            peer.made_in,
            peer.link,
        )

    def __eq__(self, other: object) -> bool:
        return other._source == self._source if isinstance(other, Client) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._source)

    def __repr__(self) -> str:
        if isinstance(self._source, str):
            return f"Client({self._source!r})"
        return f"Client({self._source!r}, now at {self.address or 'an unknown address'})"


# Functions, not methods of the client: a server may have methods of these names.


def close(client: Any) -> None:
    """Close a client's connections, as the end of a `with client:` block does. A later call reopens them.

    Futures in flight end with an error. This is a function because a server may have a method `close`.

    Example:
        lp.courier.close(learner)
    """
    client._channel.close()


def list_methods(client: Any) -> list[str]:
    """Return the sorted names of the methods that the client's server serves. The client's options apply.

    Example:
        print(lp.courier.list_methods(learner))     # ['get_variables', 'step']
    """
    names: list[str] = client._channel.call(framing.LIST_METHODS)
    return names


def health(client: Any) -> str:
    """Return `serving`, `not serving` or `draining`. Draining servers still answer this call.

    Example:
        assert lp.courier.health(learner) == "serving"
    """
    state: str = client._channel.call(framing.HEALTH)
    return state


def incarnation(client: Any) -> str:
    """Return the id of the server that answers at this address. Each restart of the server changes the id.

    If the client has not talked to the server yet, this makes a call.

    Example:
        print(lp.courier.incarnation(table))
    """
    channel: Channel = client._channel
    if channel.peer.server_hello is None:
        channel.call(framing.HEALTH)
    assert channel.peer.server_hello is not None
    return channel.peer.server_hello.incarnation.hex()


def on_restart(client: Any, callback: Callable[[], object]) -> None:
    """Call `callback()` whenever the client finds that its server was restarted.

    Example:
        courier.on_restart(table, lambda: table.load(snapshot))     # the restart lost its state

    The callback runs in the thread whose call finds the restart, before that call is sent. It may call
    the server, but must not wait for futures of this client. If the callback raises an exception, the call
    raises that exception.
    """
    client._channel.peer.restart_callbacks.append(callback)


def server_stats(client: Any) -> ServerStats:
    """Return the server's counts of the calls from all its clients. The client's options apply.

    Example:
        stats = lp.courier.server_stats(learner)
        print(stats.uptime_s, stats.methods["step"].p99_s)
    """
    statistics: ServerStats = client._channel.call(framing.STATS)
    return statistics


def stats(client: Any) -> ClientStats:
    """Return the client's counts of its calls, as `client.stats()` does.

    Use this function where type checkers treat the client as an instance of the server's class.

    Example:
        stats = lp.courier.stats(learner)
        print(stats.methods["step"].calls)
    """
    from launchpad.courier.telemetry import call_stats

    channel: Channel = client._channel
    peer = channel.peer
    return call_stats.ClientStats(
        name=caller.own_peer().name,
        server=peer.server,
        address=peer.locate(),
        incarnation=peer.server_hello.incarnation.hex() if peer.server_hello is not None else "",
        uptime_s=time.monotonic() - channel.began,
        connections=channel.n_connections,
        methods=call_stats.read(channel.counts),
    )


def count_call(client: Any, method: str, took_s: float, n_bytes: int) -> None:
    """Count, as a call, bytes that the client sent to its server through shared memory."""
    counts = client._channel.counts[method.encode()]
    counts.started += 1
    counts.finish(took_s, 0, n_bytes)


def _rebuild(
    address: str | Callable[[], str],
    name: str | None,
    options: Options,
    idempotent: tuple[str, ...],
    made_in: Process | None,
    link: Link | None,
) -> Client[Any]:
    client: Client[Any] = Client(address, name=name, idempotent=idempotent, link=link)
    client._channel.peer.made_in = made_in
    return client.with_options(**vars(options))


def _fetch_waits(address: str, token: bytes | None) -> list[Edge]:
    """Ask the server at this address which of its calls wait for other calls."""
    with Client[Any](address, token=token, call_timeout=2.0, wait_for_ready=False) as client:
        edges: list[Edge] = client._channel.call(framing.WAITS)
        return edges
