"""A client's way to a server: `Channel`, and the one over sockets.

A `SocketChannel` has a pool of connections for calls that wait, and a pipeline for others. A caller that
waits takes a connection of its own, writes its request with one system call, and reads the answer in its
own thread with another: no reader thread, no hop. The connection goes back on top of the pool, so that a
lone caller always uses the same one, at whose other end a server thread is still reading.

On one host, calls with large arrays have connections of their own, which share memory with the server.
"""

from __future__ import annotations

import pickle
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from launchpad.courier import call_stack, transport
from launchpad.courier.client import call_errors
from launchpad.courier.client.call import (
    MAX_TRIES,
    NotRun,
    decode_reply,
    may_repeat,
    pause_before_deadline,
    time_left,
    wait_for,
)
from launchpad.courier.client.connection import CHECK_EVERY_S, ClientConnection, open_socket
from launchpad.courier.client.connection_pool import ConnectionPool, MovingConnectionPool
from launchpad.courier.client.options import Options
from launchpad.courier.client.server_info import ServerInfo
from launchpad.courier.client.watchdog import SlowCallWatchdog
from launchpad.courier.codec import compression, pickling
from launchpad.courier.errors import MessageTooLarge
from launchpad.courier.interruptions import is_interruption
from launchpad.courier.protocol import framing, handshake, joined
from launchpad.courier.shm import segments
from launchpad.courier.telemetry import tracing
from launchpad.courier.telemetry.counters import Counts
from launchpad.courier.transport import stream_socket

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from concurrent.futures import Future
    from typing import Self

    from launchpad.courier.client.pipeline import Pipeline
    from launchpad.courier.client.shm_connection import ShmClientConnection

_MAX_IDLE = 16  # connections kept for later; a burst of threads may use more

_monotonic = time.monotonic
_current_call = call_stack.current_call.get
_WORTHWHILE = segments.WORTHWHILE
_loads, _loads_arrays, _SHORTEST = pickle.loads, pickling.loads, pickling.SHORTEST
_RESULT, _ERROR, _SMALL = framing.RESULT, framing.ERROR, framing.SMALL
_encode_call = pickling.encode_call
_is_small, _MOST_ARGS = joined.is_small, joined.MOST_ARGS
_here = call_stack.here
_NUMBER_TAG = framing.encode_headers({framing.RECORDED: bytes(8)})[:-8]


class Channel(ABC):
    """Makes the calls of one client, with one set of options. Safe from any number of threads.

    `with_options`, `with_trace` and `with_number` give views, which share all but that.
    `counts` has the calls of all views, by method.
    """

    def __init__(self, peer: ServerInfo, options: Options, counts: Counts | None = None) -> None:
        self.peer = peer
        self.options = options
        self.counts = Counts() if counts is None else counts
        self.trace = b""  # the span that a call belongs to
        self.number = b""  # of a call that is recorded
        self.trace_header = b""  # both, as headers

    @property
    @abstractmethod
    def n_connections(self) -> int:
        """Open now."""

    def with_options(self, options: Options) -> Self:
        """The same connections, other options."""
        view = self._view()
        view.options = options
        return view

    def with_trace(self, trace: bytes) -> Self:
        """For one call, which belongs to that span."""
        view = self._view()
        view.trace = trace
        view.trace_header += framing.encode_headers({framing.TRACE: trace})
        return view

    def with_number(self, number: bytes) -> Self:
        """For one call, which is recorded by this number, of 8 bytes."""
        view = self._view()
        view.number = number
        view.trace_header += _NUMBER_TAG + number
        return view

    def _view(self) -> Self:
        view = object.__new__(type(self))  # as `copy.copy`, which takes four times as long
        view.__dict__.update(self.__dict__)
        return view

    @abstractmethod
    def call(self, method: bytes, /, *args: Any, **kwargs: Any) -> Any:
        """Calls and waits for the answer in this thread; in a span if `tracing.spans` makes them."""

    def submit(self, method: bytes, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Calls without waiting."""
        if (spans := tracing.spans) is not None and not self.trace_header:
            return spans.submit(self, method, args, kwargs)
        return self._submit(method, args, kwargs)

    @abstractmethod
    def _submit(
        self, method: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Future[Any]: ...

    def submit_in_loop(
        self, loop: AbstractEventLoop, method: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Future[Any]:
        """`submit`, in the thread of an event loop that waits for the result."""
        return self.submit(method, *args, **kwargs)

    @abstractmethod
    def close(self) -> None:
        """Closes what is open; a later call opens it again. Futures in flight end with an error."""


class SocketChannel(Channel):
    """Calls over sockets: TCP, TLS, unix, and socket pairs within a process."""

    def __init__(self, peer: ServerInfo, options: Options, counts: Counts | None = None) -> None:
        super().__init__(peer, options, counts)
        if not peer.can_move:
            transport.find(peer.address)  # raises in the caller's line if the address is malformed
        pool = MovingConnectionPool if peer.can_move else ConnectionPool
        self.connections = pool(peer)
        self._idle_connections = self.connections.idle_connections
        self._shm_connections = self.connections.shm_connections
        self._shm_methods = self.connections.shm_methods

    @property
    def n_connections(self) -> int:
        return self.connections.n_open

    def call(self, method: bytes, /, *args: Any, **kwargs: Any) -> Any:
        if (spans := tracing.spans) is not None and not self.trace_header:
            return spans.call(self, method, args, kwargs)
        counts = self.counts[method]
        began = _monotonic()
        body, buffers = _encode_call(args, kwargs)  # what cannot be sent is no call
        if buffers is None:
            from launchpad.courier.client.stream_calls import call_with_streams

            return call_with_streams(self, method, args, kwargs)
        counts.started += 1
        n_in = n_out = 0
        pause_s = 0.0
        now = began
        record = _here.record
        outer = record.innermost
        try:
            if outer is not None:  # a call that this thread answers: another one may wait for it
                record.innermost = outer, None, self.peer, method
            headers_out = self.trace_header
            connections = (
                self._shm_connections if method in self._shm_methods else self._idle_connections
            )
            n_out = len(body)
            if buffers or n_out > _SMALL:
                n_out = n_out + sum([each.nbytes for each in buffers])
                call_errors.check_size(self.peer, method, n_out)
                if self.options.compress:
                    body, buffers, headers_out = compression.pack_if_worthwhile(
                        body, buffers, headers_out
                    )
                    n_out = framing.size(body, buffers)
                if n_out >= _WORTHWHILE and segments.is_worthwhile(buffers):
                    connections = self._shm_connections
            elif n_out > self.peer.takes_bytes:
                call_errors.check_size(self.peer, method, n_out)
            deadline = None
            if _current_call() is not None:
                deadline = self.options.find_deadline(began)
            elif (timeout_s := self.options.timeout_s) is not None:
                deadline = began + timeout_s
            while True:
                connection, reply = self.exchange(
                    method, body, buffers, headers_out, deadline, now, connections
                )
                kind, _, _, answer, views, _, headers_in = reply
                n_in = framing.size(answer, views) if views else len(answer)
                if kind <= _ERROR:
                    self.release_connection(connection)
                elif kind == framing.STREAM:
                    from launchpad.courier.client.stream_calls import open_stream

                    return open_stream(self, connection, method)
                else:
                    connection.close()  # a server that stops serves nothing else on it either
                if n_in >= _WORTHWHILE and segments.is_worthwhile(views):
                    self._shm_methods.add(method)
                if kind == _RESULT and not headers_in:
                    try:
                        if views:
                            return _loads_arrays(answer, views)
                        return _loads(answer) if len(answer) < _SHORTEST else _loads_arrays(answer)
                    except Exception as error:
                        if is_interruption(error):
                            raise
                        # Else decode_reply gives the full error.
                try:
                    return decode_reply(self.peer, method, self.options, reply)
                except NotRun:
                    pass  # what follows must not have it as its context
                pause_s = pause_before_deadline(pause_s, self.peer, method, self.options, deadline)
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

    def submit_in_loop(
        self, loop: AbstractEventLoop, method: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Future[Any]:
        if tracing.spans is not None and not self.trace_header:
            return self.submit(method, *args, **kwargs)
        return self._submit(method, args, kwargs, loop)

    def _submit(
        self,
        method: bytes,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        loop: AbstractEventLoop | None = None,
    ) -> Future[Any]:
        """All such calls of a client share one connection, but for those with large arrays."""
        if (
            not kwargs
            and len(args) <= _MOST_ARGS
            and self.options.timeout_s is None
            and not self.trace_header
            and method not in self._shm_methods
            and _current_call() is None
        ):
            for arg in args:
                if not _is_small(arg):
                    break
            else:
                return self._find_pipeline(loop).submit_small(self, method, args)
        body, views = _encode_call(args, kwargs)
        if views is None:
            from launchpad.courier.client.stream_calls import submit_with_streams

            return submit_with_streams(self, method, args, kwargs)
        if (views and segments.is_worthwhile(views)) or method in self._shm_methods:
            call = self.connections.get_shm_calls().try_submit(self, method, body, views)
            if call is not None:
                return call
        return self._find_pipeline(loop).submit(self, method, body, views)

    def _find_pipeline(self, loop: AbstractEventLoop | None) -> Pipeline:
        if loop is None:
            return self.connections.get_pipeline()
        return self.connections.get_loop_pipeline(loop)

    def close(self) -> None:
        self.connections.close()

    def exchange(
        self,
        method: bytes,
        body: bytes,
        buffers: Sequence[memoryview],
        headers_out: bytes,
        deadline: float | None,
        now: float,
        connections: deque[ClientConnection] | None = None,
    ) -> tuple[ClientConnection, framing.Fields]:
        """Sends until it is taken, and returns the answer with the connection that it came on.

        That is one of `connections`, or of their kind; without them, one that shares no memory.
        """
        connections = self._idle_connections if connections is None else connections
        tries = timeout_us = 0
        # No error is raised inside of an `except` here: a user would be shown both.
        while True:
            try:
                connection = connections.pop()
            except IndexError:
                connection = None
            if connection is None:
                if connections is not self._idle_connections:
                    self.peer.locate()  # a server that has moved may be on another host now
                    if not self.peer.shares_memory:
                        connections = self._idle_connections
                        continue
                connection = self._open(connections, method, deadline)
                now = _monotonic()
                try:  # what the server takes may be known only now
                    call_errors.check_size(
                        self.peer, method, len(body) + sum(each.nbytes for each in buffers)
                    )
                except MessageTooLarge:
                    self.release_connection(connection)
                    raise
            elif connection.is_stale is not None and connection.is_stale(connection.sock):
                connection.close()
                continue
            try:
                if deadline is not None:
                    left = deadline - now
                    if left <= 0:
                        raise call_errors.late(self.peer, method, self.options)
                    timeout_us = int(left * 1e6) or 1  # 0 would be no limit
                    if left < CHECK_EVERY_S or connection.timeout_s != CHECK_EVERY_S:
                        timeout_s = self.options.timeout_s
                        # A fresh call has its whole timeout, so that the kernel's timer need not be set.
                        if timeout_s is None or not timeout_s * 0.999 < left <= timeout_s:
                            timeout_s = left
                        connection.limit(min(CHECK_EVERY_S, timeout_s))
                try:
                    return connection, connection.exchange(
                        method, body, buffers, timeout_us, headers_out
                    )
                except OSError as error:
                    if is_interruption(error):
                        raise
                    # The traceback would keep this frame, and the arguments.
                    failed = error.with_traceback(None)
                if not isinstance(failed, BlockingIOError):
                    self._check_retry(failed, connection, method)
                elif (reply := self._wait_on(connection, method, deadline)) is not None:
                    return connection, reply
            except BaseException:  # a KeyboardInterrupt too: an answer may be on its way here
                connection.close()
                raise
            connection.close()
            now = _monotonic()
            time_left(self.peer, method, self.options, deadline)
            tries += not connection.was_used and not connection.is_sent
            if tries >= MAX_TRIES:
                self.peer.raise_if_failed()
                raise call_errors.not_taken(self.peer, method, failed) from failed

    def _wait_on(
        self, connection: ClientConnection, method: bytes, deadline: float | None
    ) -> framing.Fields | None:
        """Goes on when the kernel's timer has ended an exchange; None if the call is to be made again."""
        watchdog = SlowCallWatchdog(self.peer, method)
        while True:
            watchdog.check()
            left = time_left(self.peer, method, self.options, deadline)
            connection.limit(CHECK_EVERY_S if left is None else min(CHECK_EVERY_S, left))
            try:
                return connection.resume()
            except OSError as error:
                if is_interruption(error):
                    raise
                failed = error.with_traceback(None)
            if not isinstance(failed, BlockingIOError):
                self._check_retry(failed, connection, method)
                return None

    def _check_retry(self, failed: OSError, connection: ClientConnection, method: bytes) -> None:
        """Raises an error that explains why a call whose connection has ended is not made again."""
        if connection.is_sent:
            if not may_repeat(self.peer, method, self.options):
                raise call_errors.lost(self.peer, method, connection.address) from failed
            self.peer.raise_if_failed()

    def release_connection(self, connection: ClientConnection) -> None:
        connections = self._shm_connections if connection.shares_memory else self._idle_connections
        if len(connections) < _MAX_IDLE:
            connection.was_used = True
            connections.append(connection)
        else:
            connection.close()

    def _open(
        self, connections: deque[ClientConnection], method: bytes, deadline: float | None
    ) -> ClientConnection:
        peer = self.peer
        shares = connections is not self._idle_connections
        attempt = partial(open_socket, peer, flags=handshake.SHARE if shares else 0)
        sock, address = wait_for(attempt, peer, method, self.options, deadline)
        if not shares:
            is_stale = self._count_connection(sock, address)
            return ClientConnection(sock, peer.max_bytes, is_stale, address)
        return self._share(sock, address) or self._open(self._idle_connections, method, deadline)

    def try_to_open_shm(self, limit_s: float | None) -> ShmClientConnection | None:
        """A new connection that shares memory, if the server is up and has it; tries once.

        Raises Refused; NotSent without a descriptor.
        """
        self.peer.locate()
        found = (
            open_socket(self.peer, limit_s, handshake.SHARE) if self.peer.shares_memory else None
        )
        return None if found is None else self._share(*found)

    def _share(self, sock: stream_socket.Socket, address: str) -> ShmClientConnection | None:
        """The connection over a new socket; closes it and returns None if it shares no memory after all."""
        if not (self.peer.shares_memory and stream_socket.is_unix(sock)):  # as we know by now
            sock.close()
            return None
        from launchpad.courier.client.shm_connection import ShmClientConnection

        is_stale = self._count_connection(sock, address)
        return ShmClientConnection(sock, self.peer, is_stale, address)

    def _count_connection(
        self, sock: stream_socket.Socket, address: str
    ) -> Callable[[stream_socket.Socket], bool] | None:
        """Counts an open socket; returns what says whether it must not be used again."""
        self.connections.add(sock)
        peer, is_closed = self.peer, transport.find(address).is_stale

        def is_obsolete(sock: stream_socket.Socket) -> bool:
            # An old server may go on running, cut off from the rest: it must not be called any more.
            return peer.has_moved_from(address) or (is_closed is not None and is_closed(sock))

        return is_obsolete if peer.can_move else is_closed
