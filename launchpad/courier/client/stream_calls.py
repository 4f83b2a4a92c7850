"""Calls with streams, made by a client.

iterators among the arguments   call_with_streams: the call keeps its connection, threads send the items
an iterator as the result       open_stream: the stream keeps the connection that the call was made on
futures, iterator arguments     submit_with_streams: each call has a thread of its own
futures, iterator results       attach, in a thread: it fetches the stream over another connection, by ticket
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from launchpad.courier import call_stack
from launchpad.courier.client import call_errors
from launchpad.courier.client.call import (
    NotRun,
    decode_reply,
    next_pause,
    pause,
    pause_before_deadline,
    send_until_answered,
)
from launchpad.courier.client.call_errors import is_out_of_descriptors
from launchpad.courier.client.connection import ClientConnection
from launchpad.courier.client.future import CallFuture
from launchpad.courier.client.stream import Stream, StreamCall
from launchpad.courier.codec import pickling
from launchpad.courier.errors import NotSent
from launchpad.courier.interruptions import in_another_thread
from launchpad.courier.own_threads import OwnThread
from launchpad.courier.protocol import framing
from launchpad.courier.streams import arguments
from launchpad.courier.streams.sender import StreamSender

if TYPE_CHECKING:
    import asyncio

    from launchpad.courier.client.channel_protocols import CallRoute

_REACHABLE_S = 1.0  # how long to try to reach a server that may be up

# A function that sets the outcome of a future to what the given function returns or raises.
OnComplete = Callable[[Callable[[], Any]], object]


def open_stream(channel: CallRoute, connection: ClientConnection, method: bytes) -> Stream:
    """Return the stream that is the answer to the call on this connection."""
    call = _make_call(channel, connection, method, ())
    call.open()
    return Stream(call)


def attach(channel: CallRoute, method: bytes, ticket: bytes) -> Stream:
    """Return the stream that is the answer to a call without a connection of its own."""
    connection = _fetch_stream(channel, method, ticket)
    if connection is None:
        raise call_errors.lost(channel.peer, method, n_items=0)
    return open_stream(channel, connection, method)


def _fetch_stream(channel: CallRoute, method: bytes, ticket: bytes) -> ClientConnection | None:
    """Return the connection that now carries the stream, or None if the server no longer has the stream.

    Other calls wait until the server is up again. But a stream does not outlive its server, so this function
    tries for `_REACHABLE_S` at most, which is enough for servers that are slow to accept.
    """
    body, _ = pickling.encode(((ticket,), {}))
    began = time.monotonic()
    deadline = channel.options.find_deadline(began)
    impatient = channel.with_options(replace(channel.options, wait_for_ready=False))
    pause_s = 0.0
    while True:
        try:
            connection, reply = send_until_answered(
                impatient, framing.ATTACH, body, (), b"", deadline, began
            )
        except NotSent as error:
            if is_out_of_descriptors(error.__cause__):
                raise
            if time.monotonic() > began + _REACHABLE_S:
                return None
        else:
            if reply[0] == framing.STREAM:
                return connection
            connection.close()
            if reply[0] == framing.NOT_RUN and reply[3] == framing.LATE:
                raise call_errors.late(channel.peer, method, channel.options)
            return None
        pause_s = next_pause(pause_s)
        pause(channel.peer.address, pause_s)


def run_in_thread(
    complete: OnComplete, fn: Callable[..., Any], channel: CallRoute, *args: Any
) -> None:
    """Run `fn(channel, *args)` on a new thread for a future. `complete` sets the future's outcome."""
    run = partial(copy_context().run, complete, partial(fn, channel, *args))
    thread = OwnThread(target=run, name=f"courier-future-{channel.peer.label}")
    in_another_thread(thread.start)


def call_with_streams(
    channel: CallRoute,
    method: bytes,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    on_open: Callable[[StreamCall], object] = id,
    loop: asyncio.AbstractEventLoop | None = None,
) -> Any:
    """Make a call with iterators among its arguments, and wait for the answer.

    `on_open` gets the call as soon as there is something to close. Async iterators run on `loop`, or on a
    loop of their own if `loop` is None.
    """
    peer = channel.peer
    counts = channel.counts[method]
    began = time.monotonic()
    now = began
    counts.started += 1
    pause_s = 0.0
    try:
        with call_stack.waiting_for(peer, method):
            deadline = channel.options.find_deadline(began)
            args, kwargs, iterators = arguments.take_out(args, kwargs)
            body, buffers = pickling.encode((args, kwargs))
            call_errors.check_size(
                peer, method, len(body) + sum(buffer.nbytes for buffer in buffers)
            )
            headers_out = channel.trace_header + arguments.encode_count(len(iterators))
            while True:
                connection, reply = send_until_answered(
                    channel, method, body, buffers, headers_out, deadline, now
                )
                if reply[0] == framing.NOT_RUN:
                    connection.close()
                else:
                    call = _make_call(channel, connection, method, iterators, loop)
                    on_open(call)
                    reply = call.wait_for_answer(reply, deadline)
                    if reply[0] == framing.STREAM:
                        call.open()
                        return Stream(call)
                try:
                    return decode_reply(peer, method, channel.options, reply)
                except NotRun:
                    pass
                pause_s = pause_before_deadline(pause_s, peer, method, channel.options, deadline)
                now = time.monotonic()
    except BaseException:
        counts.errors += 1
        raise
    finally:
        counts.finish(time.monotonic() - began, 0, 0)


def submit_with_streams(
    channel: CallRoute, method: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> CallFuture:
    """Make a call with iterators among its arguments, on a new thread.

    Async iterators run on the caller's event loop, if there is one. Cancelling the future ends the call. The
    iterators are then closed, and the method sees their end.
    """
    loop = None
    module = sys.modules.get("asyncio")
    if module is not None:
        with contextlib.suppress(RuntimeError):
            loop = module.get_running_loop()
    future = CallFuture()
    opened: list[StreamCall] = []

    def cancel() -> None:
        for call in opened:
            call.close()

    def on_open(call: StreamCall) -> None:
        opened.append(call)
        if future.cancelled():
            call.close()

    future.on_cancel = cancel
    run_in_thread(future.complete, call_with_streams, channel, method, args, kwargs, on_open, loop)
    return future


def _make_call(
    channel: CallRoute,
    connection: ClientConnection,
    method: bytes,
    iterators: Sequence[Any],
    loop: asyncio.AbstractEventLoop | None = None,
) -> StreamCall:
    senders = [StreamSender(iterator, number) for number, iterator in enumerate(iterators, 1)]
    for sender in senders:
        sender.items.counts = channel.counts[method]
        sender.items.takes_bytes = channel.peer.takes_bytes
    call = StreamCall(channel, connection, method, senders, loop)
    channel.connections.add_stream(call)
    return call
