"""How a client makes the calls that have streams.

iterators among the arguments   call_with_streams: the call keeps its line, feeders send the items
an iterator as the result       open_stream: the stream keeps the line on which the call was made
futures of the former           submit_with_streams: a thread of their own
futures of the latter           attach_apart: fetched, with the ticket, over a line of its own
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from threading import Thread
from typing import Any, Protocol

from launchpad.courier.clients.future import CallFuture
from launchpad.courier.clients.line import Line
from launchpad.courier.clients.options import Options
from launchpad.courier.clients.peer import NotRun, Peer
from launchpad.courier.protocol import wire
from launchpad.courier.servers.methods import ATTACH
from launchpad.courier.servers.serving import serving
from launchpad.courier.streams import arguments
from launchpad.courier.streams.outgoing import Outgoing
from launchpad.courier.streams.stream import Stream
from launchpad.courier.streams.stream_call import StreamCall
from launchpad.courier.values import codec
from launchpad.courier.watching.counts import Counts, MethodCounts

Settle = Callable[[Callable[[], Any]], object]  # gives a future what a function returns or raises
OnOpen = Callable[[StreamCall], object]


class Lines(Protocol):
    """What is needed of a client's channel."""

    @property
    def peer(self) -> Peer: ...

    @property
    def options(self) -> Options: ...

    @property
    def counts(self) -> Counts: ...

    def exchange(
        self,
        method: bytes,
        body: bytes,
        buffers: Sequence[memoryview],
        notes_out: bytes,
        deadline: float | None,
        now: float,
    ) -> tuple[Line, wire.Fields]: ...

    def pause(self, pause_s: float, method: bytes, deadline: float | None) -> float: ...

    def put_back(self, line: Line) -> None: ...

    def add_stream(self, call: StreamCall) -> None: ...


def open_stream(lines: Lines, line: Line, method: bytes) -> Stream:
    """The stream that a call on this line was answered with."""
    call = _make_call(lines, line, method, [])
    call.open()
    return Stream(call)


def attach(lines: Lines, method: bytes, ticket: bytes) -> Stream:
    """The stream that a call which had no line to itself was answered with."""
    body, _ = codec.encode(((ticket,), {}))
    line, reply = lines.exchange(ATTACH, body, (), b"", _find_deadline(lines), time.monotonic())
    if reply[0] == wire.STREAM:
        return open_stream(lines, line, method)
    line.close()
    raise lines.peer.broken(method, 0)  # the server is another one, or has given it up


def attach_apart(lines: Lines, method: bytes, ticket: bytes, settle: Settle) -> None:
    """`attach`, on a thread of its own, which is what a future needs."""
    _settle_apart(partial(attach, lines, method, ticket), settle, lines.peer)


def call_with_streams(
    lines: Lines,
    method: bytes,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    notes_out: bytes,
    on_open: OnOpen = id,
) -> Any:
    """Calls with arguments of which some are iterators, and waits for the answer.

    `on_open` is given the call as soon as there is something to close.
    """
    call = partial(_call, lines, method, args, kwargs, notes_out, on_open)
    return _counted(lines.counts[method], call)


def _call(
    lines: Lines,
    method: bytes,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    notes_out: bytes,
    on_open: OnOpen,
) -> Any:
    deadline = _find_deadline(lines)
    args, kwargs, iterators = arguments.take_out(args, kwargs)
    body, buffers = codec.encode((args, kwargs))
    lines.peer.check_size(method, len(body) + sum(buffer.nbytes for buffer in buffers))
    notes_out += arguments.encode_count(len(iterators))
    pause_s = 0.0
    while True:
        now = time.monotonic()
        line, reply = lines.exchange(method, body, buffers, notes_out, deadline, now)
        if reply[0] == wire.NOT_RUN:
            line.close()
        else:
            call = _make_call(lines, line, method, iterators)
            on_open(call)
            reply = call.wait_for_answer(reply, deadline)
            if reply[0] == wire.STREAM:
                call.open()
                return Stream(call)
        try:
            return lines.peer.open_reply(method, lines.options, reply)
        except NotRun:
            pause_s = lines.pause(pause_s, method, deadline)


def submit_with_streams(
    lines: Lines, method: bytes, args: tuple[Any, ...], kwargs: dict[str, Any], notes_out: bytes
) -> CallFuture:
    """Calls with arguments of which some are iterators, on a thread of its own.

    Async iterators run on the event loop of the caller, if there is one. Cancelling the future ends
    the call: the iterators are closed, and the method finds them at their end.
    """
    loop = _running_loop()
    args = tuple(_stepped(arg, loop) for arg in args)
    kwargs = {name: _stepped(arg, loop) for name, arg in kwargs.items()}
    future = CallFuture()
    opened: list[StreamCall] = []

    def cancel() -> None:
        for call in opened:
            call.close()

    def on_open(call: StreamCall) -> None:
        opened.append(call)
        if future.cancelled():
            call.close()

    future.set_on_cancel(cancel)
    run = partial(call_with_streams, lines, method, args, kwargs, notes_out, on_open)
    _settle_apart(run, future.settle, lines.peer)
    return future


def _make_call(lines: Lines, line: Line, method: bytes, iterators: list[Any]) -> StreamCall:
    outgoing = []
    for number, iterator in enumerate(iterators, 1):
        each = Outgoing(_stepped(iterator, None), number)
        each.counts = lines.counts[method]
        each.takes_bytes = lines.peer.takes_bytes
        outgoing.append(each)
    call = StreamCall(
        line, lines.put_back, method, lines.peer, lines.options, lines.counts[method], outgoing
    )
    lines.add_stream(call)
    return call


def _find_deadline(lines: Lines) -> float | None:
    timeout_s, on_behalf_of = lines.options.timeout_s, serving.get()
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    return deadline if on_behalf_of is None else on_behalf_of.limit(deadline)


def _settle_apart(run: Callable[[], Any], settle: Settle, peer: Peer) -> None:
    name = f"courier-future-{peer.label}"
    target = partial(copy_context().run, settle, run)
    Thread(target=target, name=name, daemon=True).start()


def _counted(counts: MethodCounts, call: Callable[[], Any]) -> Any:
    began = time.monotonic()
    counts.started += 1
    try:
        return call()
    except BaseException:
        counts.errors += 1
        raise
    finally:
        counts.finish(time.monotonic() - began, 0, 0)


def _stepped(value: Any, loop: Any) -> Any:
    """Async iterators as plain ones; everything else as it is."""
    if hasattr(type(value), "__next__") or not hasattr(type(value), "__anext__"):
        return value
    from launchpad.courier.streams.async_iterator import Stepped

    return Stepped(value, loop)


def _running_loop() -> Any:
    """The event loop that runs in this thread, if there is one."""
    import sys

    asyncio = sys.modules.get("asyncio")
    try:
        return asyncio.get_running_loop() if asyncio is not None else None
    except RuntimeError:
        return None
