"""The table of the methods that a server serves, and the code that runs one call."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple

from launchpad.courier import call_stack
from launchpad.courier.call_stack import CallContext, current_call
from launchpad.courier.codec import pickling
from launchpad.courier.errors import MethodNotFound, RemoteError
from launchpad.courier.explained import hint_for
from launchpad.courier.promise import Promise
from launchpad.courier.protocol import framing, joined
from launchpad.courier.protocol.framing import ATTACH, LIST_METHODS, WAITS
from launchpad.courier.server.decorators import PRIORITY
from launchpad.courier.server.event_loop import EventLoop
from launchpad.courier.server.replies import (
    BARE_VALUE,
    PROMISE,
    Reply,
    encode_at_once,
    encode_result,
)
from launchpad.courier.streams.sender import StreamSender
from launchpad.courier.telemetry import tracing
from launchpad.courier.telemetry.counters import MethodCounts

if TYPE_CHECKING:
    from launchpad.courier.server.one_thread import OneThread

Fallback = Callable[[str, tuple[Any, ...], dict[str, Any]], Any]

_loads = pickle.loads
_dumps = pickle.dumps
_loads_arrays = pickling.loads
_SHORTEST = pickling.SHORTEST
_SCALARS = pickling.SCALARS
_is_small = joined.is_small
_here = call_stack.here


class Dispatcher:
    """A table of functions by name. Every change takes effect with the next call.

    Thread-safe: each change is a single operation on a dict.
    """

    def __init__(self, server: str, address: str) -> None:
        self.server = server
        self.addresses: tuple[str, ...] = (address,)
        self.unclaimed_streams = UnclaimedStreams()
        self._table: dict[bytes, Callable[..., Any]] = {
            ATTACH: self.unclaimed_streams.take,
            LIST_METHODS: self.list_names,
            WAITS: call_stack.edges,
        }
        self.fallback: Fallback | None = None  # runs methods that are not in the table
        self.fallback_names: Callable[[], list[str]] | None = None
        self.urgent: set[bytes] = set()
        self.loop = EventLoop(server)
        self.one_thread: OneThread | None = None  # runs everything that is bound after this is set

    @property
    def address(self) -> str:
        """The first of the server's addresses."""
        return self.addresses[0]

    def bind(self, name: str, fn: Callable[..., Any], is_priority: bool = False) -> None:
        if not callable(fn):
            raise TypeError(f"bind({name!r}, …) takes a callable, not {type(fn).__name__}")
        self._table[name.encode()] = self._runnable(fn) if "/" not in name else fn
        if is_priority or getattr(fn, PRIORITY, False):
            self.urgent.add(name.encode())
        else:
            self.urgent.discard(name.encode())

    def has(self, method: bytes) -> bool:
        """Return True if a function in the table, or the fallback, would run a call of this method."""
        return method in self._table or (self.fallback is not None and b"/" not in method)

    def unbind(self, name: str) -> None:
        if self._table.pop(name.encode(), None) is None:
            raise KeyError(f"{self.server} has no method {name!r} to unbind")

    def list_names(self) -> list[str]:
        names = {name.decode() for name in list(self._table) if b"/" not in name}
        if self.fallback_names is not None:
            names.update(self.fallback_names())
        return sorted(names)

    def answer(
        self,
        method: bytes,
        body: framing.Chunk,
        buffers: Sequence[framing.Chunk],
        small_args: tuple[Any, ...] | None = None,
    ) -> Reply:
        """Run one call and return its reply. An exception that the method raises becomes a reply, too.

        A call that shared a frame with other calls has `small_args` instead of a body and buffers.
        """
        record = _here.record
        outer = record.innermost
        try:
            record.innermost = outer, self, None, method
            fn = self._table.get(method)
            if fn is None:  # not `if not fn`: the bool of a user's callable may be False, or raise
                fn = self._find_fallback(method)
            if small_args is not None:
                result = fn(*small_args)
                if _is_small(result):
                    return BARE_VALUE, result, []
            else:
                try:
                    if buffers:
                        args, kwargs = _load_with(body, buffers)
                    elif len(body) < _SHORTEST:
                        args, kwargs = _loads(body)
                    else:
                        args, kwargs = _loads_arrays(body)
                except Exception as error:
                    raise self._bad_arguments(method, error) from error
                result = fn(*args, **kwargs) if kwargs else fn(*args)  # an empty dict takes time
                if type(result) in _SCALARS:  # `encode` does the same, but this saves the call
                    return framing.RESULT, _dumps(result, 5), []
            if isinstance(result, CoroutineType):
                result = self.loop.spawn(result, on_return=encode_at_once)
        except BaseException as error:  # SystemExit too: a caller must not end the server
            return framing.ERROR, pickling.encode_error(error), []
        finally:
            record.innermost = outer
        if isinstance(result, Promise):
            return PROMISE, result, []
        return encode_result(result)

    def answer_for(
        self,
        call_context: CallContext,
        method: bytes,
        body: framing.Chunk,
        buffers: Sequence[framing.Chunk],
    ) -> Reply:
        """Do what `answer` does, in a context that the method's own calls inherit."""
        token = current_call.set(call_context)
        try:
            answer = self.answer
            spans = tracing.opentelemetry
            if spans is not None and call_context.trace:
                answer = partial(spans.answer, self, call_context.trace)
            recorder = tracing.recorder
            if recorder is not None and call_context.recorded:
                call = self.server, call_context.recorded
                return recorder.answer(answer, call, method, body, buffers)
            return answer(method, body, buffers)
        finally:
            current_call.reset(token)

    def _runnable(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function that a thread of the pool calls when a client calls `fn`."""
        promising: Callable[..., Any] | None = getattr(fn, "courier_promise", None)
        if promising is not None:
            return promising
        return fn if self.one_thread is None else self.one_thread.wrapped(fn)

    def _find_fallback(self, method: bytes) -> Callable[..., Any]:
        name = method.decode(errors="replace")
        fallback = self.fallback
        if fallback is not None and b"/" not in method:
            return self._runnable(lambda *args, **kwargs: fallback(name, args, kwargs))
        names = self.list_names()
        hint = hint_for(name, names, "launchpad.courier.client.other_names:SERVED")
        raise MethodNotFound(
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


def _load_with(body: framing.Chunk, buffers: Sequence[framing.Chunk]) -> Any:
    """Unpickle arguments. Afterwards only the arguments themselves keep shared memory mapped."""
    try:
        return _loads_arrays(body, buffers)
    finally:
        if isinstance(buffers, framing.SharedChunks):
            buffers.clear()


class UnclaimedStream(NamedTuple):
    """A stream that its client has yet to fetch."""

    sender: StreamSender
    owner: object  # the connection of the call that returned the stream
    call_id: int


class UnclaimedStreams:
    """Streams that clients have yet to fetch: results of calls whose connection also serves other calls.

    client ──futures.rows()──▶ server        on the connection of all futures
           ◀──STREAM, ticket──
           ──courier/attach(ticket)──▶       on a connection of its own
           ◀──STREAM, ITEM, ITEM, …──

    Thread-safe: each change is a single operation on a dict.
    """

    def __init__(self) -> None:
        self._unclaimed: dict[bytes, UnclaimedStream] = {}  # by ticket

    def put(
        self, outgoing: StreamSender, owner: object, counts: MethodCounts, call_id: int = 0
    ) -> bytes:
        """Keep a stream from which no item has been taken. Return its ticket.

        The items are counted for the call that returned the stream, not for the call that fetches it.
        """
        outgoing.items.counts = counts
        ticket = os.urandom(16)  # random, so that a ticket of another incarnation isn't valid here
        self._unclaimed[ticket] = UnclaimedStream(outgoing, owner, call_id)
        return ticket

    def take(self, ticket: bytes) -> StreamSender:
        """Return the stream of this ticket. The ticket is valid once."""
        unclaimed = self._unclaimed.pop(ticket, None)
        if unclaimed is None:
            raise LookupError("this stream is not here: its connection ended, or it was dropped")
        return unclaimed.sender

    def drop(self, owner: object, call_id: int | None = None) -> None:
        """Drop the streams of this owner, or those of one of its calls. No client will fetch them."""
        for ticket, stream in self._unclaimed.copy().items():
            is_meant = stream.owner is owner and call_id in (None, stream.call_id)
            # Another thread may have taken the stream since the copy was made.
            if is_meant and self._unclaimed.pop(ticket, None) is not None:
                stream.sender.drop()
