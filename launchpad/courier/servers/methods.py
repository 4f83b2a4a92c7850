"""What a server serves: names and the functions behind them, and one call of one of them."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from types import CoroutineType
from typing import Any

from launchpad.courier.errors import MessageTooLarge, MethodNotFound, RemoteError
from launchpad.courier.protocol import wire
from launchpad.courier.servers.event_loop import EventLoop
from launchpad.courier.servers.later import Later
from launchpad.courier.servers.served import PRIORITY
from launchpad.courier.servers.serving import Serving, serving
from launchpad.courier.streams.outgoing import Outgoing
from launchpad.courier.streams.tickets import Tickets
from launchpad.courier.values import codec
from launchpad.courier.watching import tracing

Fallback = Callable[[str, tuple[Any, ...], dict[str, Any]], Any]
Reply = tuple[int, Any, list[memoryview]]  # kind, body, buffers

# Kinds of replies that are never on the wire as they are here. In one of kind wire.STREAM the body is
# an Outgoing.
LATER = 254  # the body is a Later, which will have the value
ELSEWHERE = 253  # another thread answers

_loads, _dumps = pickle.loads, pickle.dumps
_encode, _SCALARS = codec.encode, codec.SCALARS

# Names with a slash cannot be written as `client.name`: they are courier's own.
OURS = b"courier/"
LIST_METHODS, HEALTH = OURS + b"list_methods", OURS + b"health"
STATS, WAITS, ATTACH = OURS + b"stats", OURS + b"waits", OURS + b"attach"


class Methods:
    """A table of functions by name. Every change takes effect with the next call.

    Safe from any thread: each change is a single step on a dict.
    """

    def __init__(self, server: str, address: str) -> None:
        self.server = server
        self.addresses: tuple[str, ...] = (address,)
        self.tickets = Tickets()
        self._table: dict[bytes, Callable[..., Any]] = {
            ATTACH: self.tickets.take,
            LIST_METHODS: self.list_names,
            WAITS: _edges,
        }
        self._fallback: Fallback | None = None
        self._fallback_names: Callable[[], list[str]] | None = None
        self.urgent: set[bytes] = set()
        self.loop = EventLoop(server)

    @property
    def address(self) -> str:
        """The first of those at which they are served."""
        return self.addresses[0]

    def bind(self, name: str, fn: Callable[..., Any]) -> None:
        if not callable(fn):
            raise TypeError(f"bind({name!r}, …) takes a callable, not {type(fn).__name__}")
        self._table[name.encode()] = getattr(fn, "courier_later", fn)
        if getattr(fn, PRIORITY, False):
            self.urgent.add(name.encode())
        else:
            self.urgent.discard(name.encode())

    def has(self, method: bytes) -> bool:
        """Whether a call of it would find something to run."""
        return method in self._table or (self._fallback is not None and b"/" not in method)

    def unbind(self, name: str) -> None:
        if self._table.pop(name.encode(), None) is None:
            raise KeyError(f"{self.server} has no method {name!r} to unbind")

    def bind_fallback(self, fn: Fallback, names: Callable[[], list[str]] | None) -> None:
        self._fallback, self._fallback_names = fn, names

    def list_names(self) -> list[str]:
        names = {name.decode() for name in list(self._table) if b"/" not in name}
        if self._fallback_names is not None:
            names.update(self._fallback_names())
        return sorted(names)

    def answer(self, method: bytes, body: wire.Chunk, buffers: Sequence[wire.Chunk]) -> Reply:
        """Runs one call to its reply, whatever happens in it."""
        try:
            fn = self._table.get(method) or self._find_fallback(method)
            try:
                args, kwargs = _loads(body) if not buffers else _load(body, buffers)
            except Exception as error:
                raise self._bad_arguments(method, error) from error
            result = fn(*args, **kwargs) if kwargs else fn(*args)  # an empty dict costs, too
            if type(result) in _SCALARS:  # as `encode` does, without the way there
                return wire.RESULT, _dumps(result, 5), []
            if isinstance(result, CoroutineType):
                result = self.loop.spawn(result)
        except BaseException as error:  # SystemExit too: a caller must not end the server
            return wire.ERROR, codec.encode_error(error), []
        return (LATER, result, []) if isinstance(result, Later) else encode_result(result)

    def answer_for(
        self,
        on_behalf_of: Serving,
        method: bytes,
        body: wire.Chunk,
        buffers: Sequence[wire.Chunk],
    ) -> Reply:
        """`answer`, with something for the calls that the method makes to inherit."""
        token = serving.set(on_behalf_of)
        try:
            if on_behalf_of.trace and (spans := tracing.spans) is not None:
                return spans.answer(self, on_behalf_of.trace, method, body, buffers)
            return self.answer(method, body, buffers)
        finally:
            serving.reset(token)

    def _find_fallback(self, method: bytes) -> Callable[..., Any]:
        name = method.decode(errors="replace")
        if self._fallback is None or b"/" in method:
            raise self._not_found(name)
        fallback = self._fallback
        return lambda *args, **kwargs: fallback(name, args, kwargs)

    def _not_found(self, name: str) -> MethodNotFound:
        import difflib

        names = self.list_names()
        near = difflib.get_close_matches(name, names, n=3)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        return MethodNotFound(
            f"{self.server} ({self.address}) has no method {name!r}.{hint} "
            f"It serves: {', '.join(names) or 'nothing'}.",
            available=names,
            server=self.server,
            address=self.address,
            method=name,
        )

    def _bad_arguments(self, method: bytes, error: Exception) -> RemoteError:
        name = method.decode(errors="replace")
        return RemoteError(
            f"the arguments of {name!r} cannot be unpickled by {self.server} ({self.address}): "
            f"{type(error).__name__}: {error}. The method did not run. "
            "Their classes have to be importable there.",
            server=self.server,
            address=self.address,
            method=name,
            type_name=type(error).__name__,
            remote_repr=repr(error),
        )


def _load(body: wire.Chunk, buffers: Sequence[wire.Chunk]) -> Any:
    """The arguments. Nothing but they keep lent memory from now on: the frame's list is emptied."""
    try:
        return _loads(body, buffers=buffers)
    finally:
        if isinstance(buffers, wire.Lent):
            buffers.clear()


def _edges() -> object:
    from launchpad.courier.clients import rings

    return rings.edges()


def encode_result(result: object) -> Reply:
    """The reply that carries what a method has returned."""
    if codec.is_stream(result):
        return wire.STREAM, Outgoing(result, on_behalf_of=serving.get()), []
    if isinstance(result, Outgoing):
        return wire.STREAM, result, []
    try:
        body, views = _encode(result)
        return wire.RESULT, body, views
    except BaseException as error:
        return wire.ERROR, codec.encode_unpicklable(result, error), []


def without_stream(reply: Reply) -> Reply:
    """The reply; for a carrier that has no streams, the error that it would be one."""
    if reply[0] != wire.STREAM:
        return reply
    reply[1].drop()
    error = TypeError(
        "the method returned an iterator, and gRPC carries no streams of ours: return a list, or serve at "
        "a unix: or tcp: address"
    )
    return wire.ERROR, codec.encode_error(error), []


def fit(reply: Reply, max_bytes: int) -> Reply:
    """The reply, or the error that it is more than the caller takes at once."""
    _, body, views = reply
    size = wire.size(body, views)
    if size <= max_bytes:
        return reply
    error = MessageTooLarge(
        f"the result is {size} bytes, and the caller takes {max_bytes} at once. The method has run. "
        "Return it in parts, or give the client a larger max_bytes."
    )
    return wire.ERROR, codec.encode_error(error, is_ours=True), []


def encode_outcome(later: Later) -> Reply:
    """The reply to a call whose outcome has come."""
    try:
        result = later.result()
    except BaseException as error:
        return wire.ERROR, codec.encode_error(error), []
    return encode_result(result)
