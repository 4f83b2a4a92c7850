"""The client: calls the methods of a server as if they were its own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol

from launchpad.courier import carriers
from launchpad.courier.carriers import inprocess
from launchpad.courier.clients.channel import SocketChannel
from launchpad.courier.clients.options import Options
from launchpad.courier.clients.peer import Peer
from launchpad.courier.protocol import wire
from launchpad.courier.trust import keyring

if TYPE_CHECKING:
    from concurrent.futures import Future

    from typing_extensions import TypeVar  # which every checker brings along

    from launchpad.courier.clients.aio import Aio
    from launchpad.courier.watching.call_stats import ClientStats
    from launchpad.courier.watching.counts import Counts

    T = TypeVar("T", default=Any)  # `Client` alone is `Client[Any]`
else:
    from typing import TypeVar

    T = TypeVar("T")


class Channel(Protocol):
    """What a carrier offers a client."""

    def call(self, method: bytes, /, *args: Any, **kwargs: Any) -> Any: ...

    def submit(self, method: bytes, /, *args: Any, **kwargs: Any) -> Future[Any]: ...

    def with_options(self, options: Options) -> Channel: ...

    def close(self) -> None: ...

    @property
    def options(self) -> Options: ...

    @property
    def peer(self) -> Peer: ...

    @property
    def counts(self) -> Counts: ...

    @property
    def n_connections(self) -> int: ...


class Client(Generic[T]):
    """Calls the methods of a server.

    Example:
        with Client("unix:/run/user/1000/learner.sock") as learner:
            loss = learner.step(batch)                              # waits for the answer
            futures = [learner.futures.step(b) for b in batches]    # does not
            losses = [future.result() for future in futures]

    With `Client[Learner](…)` type checkers know `learner` as a Learner: see `courier.typed`.

    A call runs at most once. It blocks its own thread only, and any number of threads may share a
    client. It returns the method's result or raises: the method's own exception, with the remote
    traceback as `__cause__`; or a CourierError that says what is known about the call. The first
    call connects. Clients pickle (without token and verdict), hash and compare by address; those of
    a server that moves by the callable.

    Some names are the client's own: `address`, `aio`, `futures`, `stats`, `with_options`. A remote
    method of such a name is reached as `client.futures.address()`.

    Args:
        address: the server's: `unix:/absolute/path`, `tcp:HOST:PORT`, `tcp+plaintext:HOST:PORT`,
            `inproc:anything`, `grpc:HOST:PORT` or `grpc+plaintext:HOST:PORT`. Of a server that
            moves: a callable that says where it is now (`unix:` and `tcp:` only), "" while nobody
            knows. It is asked before each call, from any thread, so it has to be quick. What it
            raises, the call raises.
        name: what errors call the server until it has said its name.
        token: shown to the server. None asks the keyring for the address.
        call_timeout: seconds that a call may take, waiting for the server included; None is no
            limit. Past it the call raises DeadlineExceeded.
        wait_for_ready: a call made before the server is up waits for it. If False, it raises
            NotSent at once.
        verdict: asked while a call waits for a server that is not up, and when a connection ends.
            An exception that it returns is raised in place of further waiting.
        max_bytes: the largest result that it takes; a larger one raises MessageTooLarge.
        idempotent: methods that may run twice, so that courier may repeat calls of them.
    """

    def __init__(
        self,
        address: str | Callable[[], str],
        *,
        name: str | None = None,
        token: bytes | None = None,
        call_timeout: float | None = None,
        wait_for_ready: bool = True,
        verdict: Callable[[], Exception | None] | None = None,
        max_bytes: int = wire.MAX_BYTES,
        idempotent: Collection[str] = (),
    ) -> None:
        self._given = address
        self._name = name
        if token is not None and len(token) > keyring.MAX_TOKEN_BYTES:
            raise ValueError(f"a token is at most {keyring.MAX_TOKEN_BYTES} bytes")
        peer = Peer(
            address,
            name=name,
            token=token,
            verdict=verdict,
            max_bytes=max_bytes,
            idempotent=frozenset(name.encode() for name in idempotent),
        )
        self._channel = _open_channel(peer, Options(call_timeout, wait_for_ready))
        self._futures: Futures | None = None
        self._aio: Aio | None = None

    @property
    def address(self) -> str:
        """Where the server is now; "" if nobody knows yet."""
        return self._channel.peer.locate()

    @property
    def futures(self) -> Futures:
        """The same methods, returning a `concurrent.futures.Future` at once."""
        if self._futures is None:
            self._futures = Futures(self._channel)
        return self._futures

    @property
    def aio(self) -> Aio:
        """The same methods, to be awaited."""
        if self._aio is None:
            from launchpad.courier.clients.aio import Aio

            self._aio = Aio(self._channel, _method_name)
        return self._aio

    def with_options(self, **changes: Any) -> Client[T]:
        """The same client with other options, for one call or many; connections are shared.

        Example:
            table = parameters.with_options(timeout_s=2.0, idempotent=True).get("embedding")

        Raises TypeError for an option that there is not; see `options.Options`.
        """
        view = copy.copy(self)
        for name in tuple(view.__dict__):
            if not name.startswith("_"):
                del view.__dict__[name]  # a method that was found, with the options it had
        view._channel = self._channel.with_options(replace(self._channel.options, **changes))
        view._futures = view._aio = None
        return view

    def stats(self) -> ClientStats:
        """What this client has counted of its calls so far, by method.

        Example:
            print(learner.stats())                  # a table
            learner.stats().methods["step"].p99_s
        """
        from launchpad.courier.watching import call_stats

        return call_stats.of_client(self._channel)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._channel.call(b"__call__", *args, **kwargs)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = partial(self._channel.call, _method_name(name))
        self.__dict__[name] = method  # found without us from now on
        return method

    def __enter__(self) -> T:  # what type checkers shall take it for
        return self  # type: ignore[return-value]

    def __exit__(self, *_: object) -> None:
        close(self)

    def __reduce__(self) -> tuple[Any, ...]:
        idempotent = tuple(name.decode() for name in self._channel.peer.idempotent)
        return _rebuild, (self._given, self._name, self._channel.options, idempotent)

    def __eq__(self, other: object) -> bool:
        return other._given == self._given if isinstance(other, Client) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._given)

    def __repr__(self) -> str:
        if isinstance(self._given, str):
            return f"Client({self._given!r})"
        return f"Client({self._given!r}, now at {self.address or 'a place that nobody knows'})"


class Futures:
    """The methods of a server, each returning a Future at once: `client.futures.step(batch)`.

    `cancel` works until the answer is here; a call that the server has not begun is then not
    begun. Callbacks run on the client's reader thread: keep them short, and do not wait there
    for another future of the same client.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def __call__(self, *args: Any, **kwargs: Any) -> Future[Any]:
        return self._channel.submit(b"__call__", *args, **kwargs)

    def __getattr__(self, name: str) -> Callable[..., Future[Any]]:
        method = partial(self._channel.submit, _method_name(name))
        self.__dict__[name] = method
        return method


def close(client: Any) -> None:
    """Closes a client's connections; leaving `with client:` does the same. A later call opens them again.

    Futures in flight end with an error. No method of the client, since a server may have one of that name.
    """
    client._channel.close()


def _open_channel(peer: Peer, options: Options) -> Channel:
    if peer.moves:
        return SocketChannel(peer, options)
    if peer.address.startswith(inprocess.PREFIX):
        from launchpad.courier.local.channel import LocalChannel

        return LocalChannel(peer, options)
    if carriers.is_grpc(peer.address):
        from launchpad.courier.over_grpc.stub import GrpcChannel

        return GrpcChannel(peer, options)
    return SocketChannel(peer, options)


def _method_name(name: str) -> bytes:
    """Refuses names that copy, pickle and inspection ask every object for: no call is meant."""
    encoded = name.encode()
    if name.startswith("_"):
        raise AttributeError(f"a courier client has no {name!r}: remote names have no underscore")
    if len(encoded) > wire.MAX_NAME:
        raise AttributeError(f"a method name of {len(encoded)} bytes; the limit is {wire.MAX_NAME}")
    return encoded


def _rebuild(
    address: str | Callable[[], str],
    name: str | None,
    options: Options,
    idempotent: tuple[str, ...],
) -> Client[Any]:
    client: Client[Any] = Client(address, name=name, idempotent=idempotent)
    client._channel = client._channel.with_options(options)
    return client
