"""A call that waits for its answer, and the rule that says whether a request is sent again.

the outcome of sending a request                                    is it sent again?
──────────────────────────────────────────────────────────────────  ────────────────────────────────────────
it was not sent in full: the connection or the server was gone      yes, until its deadline
the server answers that the request has not run (NotRun, GOAWAY)    yes, until its deadline
a new connection ended before the whole request was sent            yes, `MAX_TRIES` times; then NotSent
it was sent and not answered; it may run twice (`may_repeat`)       yes
it was sent and not answered; it may not run twice                  never: OutcomeUnknown
the server refuses this client, or speaks another protocol          never: the error is raised
this process has no descriptor left for a connection                never: NotSent

A server runs only complete messages. So if a write fails, the message was incomplete, and nothing ran. This
also covers a server that was restarted since the last call, because the first write to the old connection
fails. (Over TCP the first write does not fail, so there `is_stale` is asked before it.) If a request was
written in full and no answer comes, the outcome is unknown. A server that stops in an orderly way says in
its last message that it has run only the calls that it has answered.

The same rule holds for calls with streams (stream_calls.py) and for futures. When the request of a future is
sent again, it goes into the queue of the next connection (reader.py) or to the pipeline (shm_calls.py), or it
waits for the next handshake (grpc/connection.py).
"""

from __future__ import annotations

import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from launchpad.courier import call_stack, log
from launchpad.courier.client import call_errors
from launchpad.courier.client.connection import CHECK_EVERY_S, ClientConnection
from launchpad.courier.client.options import Options
from launchpad.courier.client.server_info import ServerInfo
from launchpad.courier.client.watchdog import SlowCallWatchdog
from launchpad.courier.codec import compression, pickling
from launchpad.courier.errors import MessageTooLarge, ProtocolError
from launchpad.courier.interruptions import Event, is_interruption
from launchpad.courier.protocol import framing
from launchpad.courier.shm import segments
from launchpad.courier.telemetry import tracing

if TYPE_CHECKING:
    from launchpad.courier.client.channel_protocols import CallRoute

R = TypeVar("R")

# How often a request is tried on new connections that end before it is sent.
MAX_TRIES = 3

_MOST_IDLE = 16  # idle connections that are kept for later calls; a burst of threads may open more

_FIRST_PAUSE_S = 0.001
_LONG_PAUSE_S = 0.02
_LAST_PAUSE_S = 0.05  # the longest time for which a server that came up can go unnoticed

_monotonic = time.monotonic
_current_call = call_stack.current_call.get
_here = call_stack.here
_WORTHWHILE = segments.WORTHWHILE
_loads = pickle.loads
_loads_arrays = pickling.loads
_SHORTEST = pickling.SHORTEST
_RESULT = framing.RESULT
_ERROR = framing.ERROR
_SMALL = framing.SMALL
_encode_call = pickling.encode_call

_paused: dict[threading.Event, str] = {}
"""The events that paused threads wait for, each with the address of the thread's server.

The dict needs no lock, because each use of it is one atomic operation.
"""


class NotRun(Exception):
    """The server's answer that a call has not run and will not run: the caller may make it again."""


def call_and_wait(channel: CallRoute, method: bytes, /, *args: Any, **kwargs: Any) -> Any:
    """Make a call and wait for the answer in this thread. `SocketChannel.call` is this function."""
    spans = tracing.spans
    if spans is not None and not channel.trace_header:
        return spans.call(channel, method, args, kwargs)
    peer = channel.peer
    options = channel.options
    counts = channel.counts[method]
    began = _monotonic()
    # An argument that can't be encoded raises here, before the call is counted.
    body, buffers = _encode_call(args, kwargs)
    if buffers is None:
        return channel.call_with_streams(method, args, kwargs)
    counts.started += 1
    n_in = 0
    n_out = 0
    pause_s = 0.0
    now = began
    record = _here.record
    outer = record.innermost
    try:
        # If this thread is answering a call, record which call it waits for now. So courier finds cycles of
        # calls that wait for each other.
        if outer is not None:
            record.innermost = outer, None, peer, method
        headers_out = channel.trace_header
        connections = channel.idle_connections  # the connection on top was used last
        if method in channel.shm_methods:  # the method has returned large arrays before
            connections = channel.shm_connections
        n_out = len(body)
        # A small call costs one comparison here, and no function call.
        if buffers or n_out > _SMALL:
            n_out = n_out + sum([buffer.nbytes for buffer in buffers])
            call_errors.check_size(peer, method, n_out)
            if options.compress:
                body, buffers, headers_out = compression.pack_if_worthwhile(
                    body, buffers, headers_out
                )
                n_out = framing.size(body, buffers)
            if n_out >= _WORTHWHILE and segments.is_worthwhile(buffers):
                connections = channel.shm_connections
        elif n_out > peer.takes_bytes:
            call_errors.check_size(peer, method, n_out)
        deadline = None
        if _current_call() is not None:
            deadline = options.find_deadline(began)
        else:
            timeout_s = options.timeout_s
            if timeout_s is not None:
                deadline = began + timeout_s
        while True:
            connection, reply = send_until_answered(
                channel, method, body, buffers, headers_out, deadline, now, connections
            )
            kind, _, _, answer, views, _, headers_in = reply
            n_in = framing.size(answer, views) if views else len(answer)
            if kind <= _ERROR:
                release_connection(channel, connection)
            elif kind == framing.STREAM:
                return channel.open_stream(connection, method)
            else:
                connection.close()  # a server that stops serves nothing more on this connection
            if n_in >= _WORTHWHILE and segments.is_worthwhile(views):
                channel.shm_methods.add(method)
            if kind == _RESULT and not headers_in:
                try:
                    if views:
                        return _loads_arrays(answer, views)
                    return _loads(answer) if len(answer) < _SHORTEST else _loads_arrays(answer)
                except Exception as error:
                    if is_interruption(error):
                        raise
                    # For other errors, decode_reply below raises the full error.
            try:
                return decode_reply(peer, method, options, reply)
            except NotRun:
                pass  # leave the `except`, so that later errors don't have NotRun as their context
            log.debug(
                "%s is stopping and has not run %s(); it is sent again", peer, method.decode()
            )
            pause_s = pause_before_deadline(pause_s, peer, method, options, deadline)
            now = _monotonic()
    except BaseException:
        counts.errors += 1
        raise
    finally:
        record.innermost = outer
        took_s = _monotonic() - began
        # INLINE: MethodCounts.finish(counts, took_s, n_in, n_out)
        bucket = int(took_s * 1e6).bit_length()
        counts.total_s += took_s
        counts.bytes_in += n_in
        counts.bytes_out += n_out
        counts.buckets[bucket] += 1


def send_until_answered(
    channel: CallRoute,
    method: bytes,
    body: bytes,
    buffers: Sequence[memoryview],
    headers_out: bytes,
    deadline: float | None,
    now: float,
    connections: deque[ClientConnection] | None = None,
) -> tuple[ClientConnection, framing.Fields]:
    """Send a request until a server takes it. Return the connection and the answer.

    The connection is one of `connections`, or a new connection of the same kind. Without `connections`, it
    is a connection that shares no memory.
    """
    peer = channel.peer
    options = channel.options
    if connections is None:
        connections = channel.idle_connections
    tries = 0
    timeout_us = 0
    # Don't raise errors inside an `except` here: the user would see both errors.
    while True:
        try:
            connection = connections.pop()
        except IndexError:
            connection = None
        if connection is None:
            if connections is not channel.idle_connections:
                peer.locate()  # a server that has moved may be on another host now
                if not peer.shares_memory:
                    connections = channel.idle_connections
                    continue
            connection = channel.open_connection(connections, method, deadline)
            now = _monotonic()
            try:  # the size that this server accepts is known only after the handshake
                call_errors.check_size(
                    peer, method, len(body) + sum(buffer.nbytes for buffer in buffers)
                )
            except MessageTooLarge:
                release_connection(channel, connection)
                raise
        elif connection.is_stale is not None and connection.is_stale(connection.sock):
            connection.close()
            continue
        try:
            if deadline is not None:
                remaining_s = deadline - now
                if remaining_s <= 0:
                    raise call_errors.late(peer, method, options)
                timeout_us = int(remaining_s * 1e6) or 1  # 0 would mean no limit
                if remaining_s < CHECK_EVERY_S or connection.timeout_s != CHECK_EVERY_S:
                    timeout_s = options.timeout_s
                    # At the start of a call, round the remaining time up to the call's timeout: the socket
                    # probably has this limit already, and needs no system call to set it.
                    if timeout_s is None or not timeout_s * 0.999 < remaining_s <= timeout_s:
                        timeout_s = remaining_s
                    connection.limit(min(CHECK_EVERY_S, timeout_s))
            try:
                return connection, connection.exchange(
                    method, body, buffers, timeout_us, headers_out
                )
            except OSError as error:
                if is_interruption(error):
                    raise
                # Through its traceback, the error would keep the arguments of this function alive.
                failed = error.with_traceback(None)
            if isinstance(failed, BlockingIOError):
                reply = _wait_on(channel, connection, method, deadline)
                if reply is not None:
                    return connection, reply
            else:
                _check_retry(channel, failed, connection, method)
        except BaseException:  # KeyboardInterrupt too: the answer may still arrive here
            connection.close()
            raise
        connection.close()
        now = _monotonic()
        time_left(peer, method, options, deadline)
        tries += not connection.was_used and not connection.is_sent
        if tries >= MAX_TRIES:
            peer.raise_if_failed()
            raise call_errors.not_taken(peer, method, failed) from failed


def release_connection(channel: CallRoute, connection: ClientConnection) -> None:
    """Put back a connection whose call ended well. The next call takes the connection put back last."""
    connections = channel.idle_connections
    if connection.shares_memory:
        connections = channel.shm_connections
    if len(connections) < _MOST_IDLE:
        connection.was_used = True
        connections.append(connection)
    else:
        connection.close()


def _wait_on(
    channel: CallRoute, connection: ClientConnection, method: bytes, deadline: float | None
) -> framing.Fields | None:
    """Continue an exchange that reached its time limit. Return None if the request must be sent again."""
    peer = channel.peer
    watchdog = SlowCallWatchdog(peer, method)
    while True:
        watchdog.check()
        remaining_s = time_left(peer, method, channel.options, deadline)
        connection.limit(CHECK_EVERY_S if remaining_s is None else min(CHECK_EVERY_S, remaining_s))
        try:
            return connection.resume()
        except OSError as error:
            if is_interruption(error):
                raise
            failed = error.with_traceback(None)
        if not isinstance(failed, BlockingIOError):
            _check_retry(channel, failed, connection, method)
            return None


def _check_retry(
    channel: CallRoute, failed: OSError, connection: ClientConnection, method: bytes
) -> None:
    """Raise an error if a request whose connection has ended must not be sent again."""
    peer = channel.peer
    name = method.decode()
    if not connection.is_sent:
        log.debug("connection to %s ended before %s() was sent; it is sent again", peer, name)
        return
    if not may_repeat(peer, method, channel.options):
        log.debug("connection to %s ended during %s(): it may have run", peer, name)
        raise call_errors.lost(peer, method, connection.address) from failed
    peer.raise_if_failed()
    log.debug("connection to %s ended during %s(), which may run twice: sent again", peer, name)


def may_repeat(peer: ServerInfo, method: bytes, options: Options) -> bool:
    """Return True if a call may run twice, because the caller's options or the server's class allow it."""
    return options.idempotent or method in peer.idempotent


def decode_reply(peer: ServerInfo, method: bytes, options: Options, reply: framing.Fields) -> Any:
    """Return the value that a reply carries, or raise the exception that it carries.

    Raises:
        NotRun: The call has not run, and may be made again.
    """
    kind, _, _, body, buffers, _, header_data = reply
    if header_data:
        headers = framing.decode_headers(header_data)
        body, buffers = compression.unpack_if_packed(headers, body, buffers, peer.max_bytes)
    if kind == framing.RESULT:
        try:
            return pickling.loads(body, buffers)
        except Exception as error:
            error.add_note(
                f"(the result of {method.decode()!r}, which has run at {peer}, cannot be "
                "unpickled here: its classes have to be importable on both sides)"
            )
            raise
    if kind == framing.ERROR:
        raise pickling.decode_error(
            body, server=peer.server, address=peer.address, method=method.decode()
        )
    if kind != framing.NOT_RUN:
        raise ProtocolError(f"{peer} answered with a frame of kind {kind}")
    if body == framing.LATE:
        raise call_errors.late(peer, method, options)
    raise NotRun


# Waiting for a server that is not up.


def wait_for(
    attempt: Callable[[float | None], R | None],
    peer: ServerInfo,
    method: bytes,
    options: Options,
    deadline: float | None,
) -> R:
    """Repeat `attempt(seconds left)` until it returns something, with short pauses in between.

    Raises DeadlineExceeded, or the error of the client's `failure_check`. For a client with
    wait_for_ready=False, raises NotSent after the first attempt.
    """
    pause_s = 0.0
    while True:
        outcome = attempt(time_left(peer, method, options, deadline))
        if outcome is not None:
            return outcome
        pause_s = pause_before_deadline(pause_s, peer, method, options, deadline)


def pause_before_deadline(
    pause_s: float, peer: ServerInfo, method: bytes, options: Options, deadline: float | None
) -> float:
    """Pause before the next attempt of a call. `pause_s` is the previous pause. Return the new pause."""
    check_wait(peer, method, options)
    remaining_s = time_left(peer, method, options, deadline)
    pause_s = next_pause(pause_s)
    pause(peer.address, pause_s if remaining_s is None else min(pause_s, remaining_s))
    return pause_s


def check_wait(peer: ServerInfo, method: bytes, options: Options) -> None:
    """Raise an error if waiting for a server that is not up is pointless or not allowed."""
    peer.raise_if_failed()
    if not options.wait_for_ready:
        raise call_errors.not_up(peer, method)


def time_left(
    peer: ServerInfo, method: bytes, options: Options, deadline: float | None
) -> float | None:
    """Return the seconds until the deadline; None without a deadline. Past it, raise DeadlineExceeded."""
    if deadline is None:
        return None
    remaining_s = deadline - time.monotonic()
    if remaining_s <= 0:
        raise call_errors.late(peer, method, options)
    return remaining_s


def next_pause(pause_s: float = 0.0) -> float:
    """Return the length of the pause that follows a pause of `pause_s`. 0 means that there was no pause yet.

    The first pauses are short, for a server that is just starting. Later ones are longer, because hundreds
    of waiting clients must not take the processor from servers that start.
    """
    growth = 2.0 if pause_s < _LONG_PAUSE_S else 1.05
    return min(pause_s * growth, _LAST_PAUSE_S) or _FIRST_PAUSE_S


def pause(address: str, pause_s: float) -> None:
    """Pause before the next attempt to connect. `wake(address)` ends the pause early."""
    woken = Event()
    _paused[woken] = address
    try:
        woken.wait(pause_s)
    finally:
        del _paused[woken]


def wake(address: str) -> None:
    """Let all clients in this process that wait for this server try now, because the server is up."""
    for woken, waited_for in list(_paused.items()):
        if waited_for == address:
            woken.set()
