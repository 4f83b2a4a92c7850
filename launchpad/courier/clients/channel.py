"""A client's way to a server on a socket: a pool of lines for calls that wait, a pipeline for others.

A caller that waits takes a line of its own, writes its request with one system call, and reads the
answer in its own thread with another: no reader thread, no hop. The line goes back on top of the
pool, so that a lone caller always uses the same one, at whose other end a server thread is still
reading.

On one host, calls with large arrays have lines of their own, which share memory with the server.
"""

from __future__ import annotations

import contextlib
import copy
import pickle
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from launchpad.courier import carriers, forking
from launchpad.courier.carriers import sockets
from launchpad.courier.carriers.sockets import Socket
from launchpad.courier.clients.line import PATIENCE_S, Connected, Line, find_is_stale, open_socket
from launchpad.courier.clients.options import Options
from launchpad.courier.clients.patience import Patience
from launchpad.courier.clients.peer import MAX_TRIES, NotRun, Peer, next_pause
from launchpad.courier.protocol import compression, greeting, notes, wire
from launchpad.courier.servers.serving import serving
from launchpad.courier.sharing import segments
from launchpad.courier.values import codec
from launchpad.courier.watching import tracing
from launchpad.courier.watching.counts import Counts

if TYPE_CHECKING:
    from concurrent.futures import Future

    from launchpad.courier.clients.pipeline import Pipeline
    from launchpad.courier.streams.stream_call import StreamCall

_MAX_IDLE = 16  # lines kept for later; a burst of threads may use more

_monotonic = time.monotonic
_serving = serving.get
_loads = pickle.loads
_RESULT, _ERROR, _SMALL = wire.RESULT, wire.ERROR, wire.SMALL
_encode_call = codec.encode_call


class _TryAgain(Exception):
    """The call has not run, or may run twice."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(reason)
        self.reason = reason


class Connections:
    """What all views of one client share: its open connections."""

    def __init__(self, peer: Peer, counts: Counts | None = None) -> None:
        self.peer = peer
        self.idle: deque[Line] = deque()
        # Those that share memory: a little slower for small calls, so not for these.
        self.wide: deque[Line] = deque() if peer.shares_memory or peer.moves else self.idle
        self.wide_methods: set[bytes] = set()  # have returned something large
        self.counts = Counts() if counts is None else counts
        self._streams: weakref.WeakSet[StreamCall] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._pipeline: Pipeline | None = None
        self._sockets: weakref.WeakSet[Socket] = weakref.WeakSet()  # of lines, in use or not
        forking.drop_in_child(self)
        # Not the client's: `Client(address).method` outlives the client that made it.
        weakref.finalize(self, _close_all, self.idle, self.wide)

    @property
    def n_open(self) -> int:
        with self._lock:
            n_lines = sum(sock.fileno() >= 0 for sock in self._sockets)
        return n_lines + (self._pipeline is not None and self._pipeline.is_connected)

    def add(self, sock: Socket) -> None:
        """A line has opened this connection."""
        with self._lock:
            self._sockets.add(sock)

    def add_stream(self, call: StreamCall) -> None:
        """This one is to be closed with all else that is open."""
        with self._lock:
            self._streams.add(call)

    def get_pipeline(self) -> Pipeline:
        return self._pipeline or self._open_pipeline()

    def close(self) -> None:
        """Closes what is open; a later call opens it again."""
        with self._lock:
            pipeline, self._pipeline = self._pipeline, None
            streams = tuple(self._streams)
        if pipeline is not None:
            pipeline.close()
        for stream in streams:
            stream.break_off()
        _close_all(self.idle, self.wide)

    def drop_inherited(self) -> None:
        """For a forked child: forgets the parent's connections."""
        self._lock = threading.Lock()
        self._sockets = weakref.WeakSet()
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            pipeline.drop_inherited()
        for stream in tuple(self._streams):
            stream.drop_inherited()
        _close_all(self.idle, self.wide)

    def _open_pipeline(self) -> Pipeline:
        from launchpad.courier.clients.pipeline import Pipeline

        with self._lock:
            if self._pipeline is None:
                self._pipeline = Pipeline(self.peer, self.counts)
            return self._pipeline


class MovingConnections(Connections):
    """Those of a client whose server may move: calls that begin after a move go to the new place.

    What is in flight to the old place ends there, on its own connection.
    """

    def __init__(self, peer: Peer, counts: Counts | None = None) -> None:
        super().__init__(peer, counts)
        self._left: weakref.WeakSet[Pipeline] = weakref.WeakSet()

    def add(self, sock: Socket) -> None:
        """Also a moment to drop the lines to the old place: some may not be asked for any more."""
        super().add(sock)
        for lines in (self.idle, self.wide):
            for _ in range(len(lines)):
                self._drop_or_keep(lines)

    def get_pipeline(self) -> Pipeline:
        pipeline = super().get_pipeline()
        if not pipeline.has_been_left:
            return pipeline
        with self._lock:
            if self._pipeline is pipeline:
                self._pipeline = None
                self._left.add(pipeline)
        pipeline.leave()
        return super().get_pipeline()

    def close(self) -> None:
        super().close()
        for pipeline in tuple(self._left):
            pipeline.close()

    def drop_inherited(self) -> None:
        super().drop_inherited()
        left, self._left = tuple(self._left), weakref.WeakSet()
        for pipeline in left:
            pipeline.drop_inherited()

    def _drop_or_keep(self, lines: deque[Line]) -> None:
        with contextlib.suppress(IndexError):  # others take lines meanwhile
            line = lines.popleft()
            if line.address == self.peer.address:
                lines.append(line)
            else:
                line.close()


class SocketChannel:
    """Makes the calls of one client, with one set of options. Safe from any number of threads."""

    def __init__(self, peer: Peer, options: Options, counts: Counts | None = None) -> None:
        if not peer.moves:
            carriers.find(peer.address)  # a mistake is the error of who makes it
        self.peer = peer
        self.options = options
        self._timeout_s = options.timeout_s
        self._notes = b""
        self._connections = (
            MovingConnections(peer, counts) if peer.moves else Connections(peer, counts)
        )
        self._idle = self._connections.idle
        self._wide = self._connections.wide
        self._wide_methods = self._connections.wide_methods
        self._counts = self._connections.counts

    @property
    def counts(self) -> Counts:
        """By method, over all options."""
        return self._counts

    @property
    def n_connections(self) -> int:
        """Open now."""
        return self._connections.n_open

    def with_options(self, options: Options) -> SocketChannel:
        """The same connections, other options."""
        view = copy.copy(self)
        view.options = options
        view._timeout_s = options.timeout_s
        return view

    def with_trace(self, trace: bytes) -> SocketChannel:
        """For one call: it says which span it belongs to."""
        view = copy.copy(self)
        view._notes = notes.encode({notes.TRACE: trace})
        return view

    def call(self, method: bytes, /, *args: Any, **kwargs: Any) -> Any:
        """Calls and waits for the answer in this thread."""
        if (spans := tracing.spans) is not None and not self._notes:
            return spans.call(self, method, args, kwargs)
        counts = self._counts[method]
        began = _monotonic()
        body, buffers = _encode_call(args, kwargs)  # what cannot be sent is no call
        if buffers is None:
            from launchpad.courier.streams.stream_calls import call_with_streams

            return call_with_streams(self, method, args, kwargs, self._notes)
        counts.started += 1
        n_in = n_out = 0
        pause_s = 0.0
        now = began
        try:
            notes_out = self._notes
            lines = self._wide if method in self._wide_methods else self._idle
            if buffers or len(body) > _SMALL:
                body, buffers, said = self._prepare(method, body, buffers)
                notes_out += said
                if segments.is_worthwhile(buffers):
                    lines = self._wide
            n_out = wire.size(body, buffers) if buffers else len(body)
            deadline, on_behalf_of = None, _serving()
            if on_behalf_of is not None:
                deadline = on_behalf_of.limit(self._find_deadline(began))
            elif self._timeout_s is not None:
                deadline = began + self._timeout_s
            while True:
                line, reply = self.exchange(method, body, buffers, notes_out, deadline, now, lines)
                kind, _, _, answer, views, _, notes_in = reply
                n_in = wire.size(answer, views) if views else len(answer)
                if kind <= _ERROR:
                    self.put_back(line)
                elif kind == wire.STREAM:
                    from launchpad.courier.streams.stream_calls import open_stream

                    return open_stream(self, line, method)
                else:
                    line.close()  # a server that stops serves nothing else on it either
                if kind == _RESULT and not views and not notes_in:
                    try:
                        return _loads(answer)
                    except Exception:  # the long way says more about it
                        pass
                if segments.is_worthwhile(views):
                    self._wide_methods.add(method)
                try:
                    return self.peer.open_reply(method, self.options, reply)
                except NotRun:
                    pause_s = self.pause(pause_s, method, deadline)
                    now = _monotonic()
        except BaseException:
            counts.errors += 1
            raise
        finally:
            took_s = _monotonic() - began
            bucket = int(took_s * 1e6).bit_length()
            counts.total_s += took_s
            counts.bytes_in += n_in
            counts.bytes_out += n_out
            counts.buckets[bucket] += 1

    def submit(self, method: bytes, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Calls without waiting. All such calls of a client share one connection, as a rule."""
        if (spans := tracing.spans) is not None and not self._notes:
            return spans.submit(self, method, args, kwargs)
        pipeline = self._connections.get_pipeline()
        return pipeline.submit(method, args, kwargs, self.options, self._notes, self)

    def close(self) -> None:
        """Closes what is open; a later call opens it again."""
        self._connections.close()

    def exchange(
        self,
        method: bytes,
        body: bytes,
        buffers: Sequence[memoryview],
        notes_out: bytes,
        deadline: float | None,
        now: float,
        lines: deque[Line] | None = None,
    ) -> tuple[Line, wire.Fields]:
        """Sends until it is taken, and returns the answer with the line that it came on.

        The line is one of `lines`, or as they are; without them, one that shares no memory.
        """
        lines = self._idle if lines is None else lines
        tries = timeout_us = 0
        while True:
            try:
                line = lines.pop()
                if line.is_stale is not None and line.is_stale(line.sock):
                    line.close()
                    continue
            except IndexError:
                if lines is not self._idle and not self._may_share_memory():
                    lines = self._idle
                    continue
                line = self._open(lines, method, deadline)
                now = _monotonic()
            try:
                if deadline is not None:
                    left = deadline - now
                    if left <= 0:
                        raise self.peer.late(method, self.options)
                    timeout_us = int(left * 1e6) or 1  # 0 would be no limit
                    if left < PATIENCE_S or line.timeout_s != PATIENCE_S:
                        self._limit(line, left)
                try:
                    return line, line.exchange(method, body, buffers, timeout_us, notes_out)
                except OSError as error:
                    return line, self._persist(error, line, method, deadline)
            except _TryAgain as failed:
                line.close()
                now = _monotonic()
                self.peer.time_left(method, self.options, deadline)
                tries += not line.was_used and not line.is_sent
                if tries >= MAX_TRIES:
                    self.peer.raise_verdict()
                    raise self.peer.not_taken(method, failed.reason) from failed.reason
            except BaseException:  # a KeyboardInterrupt too: an answer may be on its way here
                line.close()
                raise

    def _prepare(
        self, method: bytes, body: bytes, buffers: Sequence[memoryview]
    ) -> tuple[bytes, Sequence[memoryview], bytes]:
        """A large call as it shall travel: body, buffers, notes."""
        self.peer.check_size(method, len(body) + sum(buffer.nbytes for buffer in buffers))
        if not self.options.compress or not compression.is_worthwhile(body, buffers):
            return body, buffers, b""
        body, buffers, note = compression.pack(body, buffers)
        return body, buffers, notes.encode({notes.COMPRESSED: note})

    def pause(self, pause_s: float, method: bytes, deadline: float | None) -> float:
        """For a server that takes no calls, and may go on not taking any for a while."""
        self.peer.check_wait(method, self.options)
        left = self.peer.time_left(method, self.options, deadline)
        pause_s = next_pause(pause_s)
        time.sleep(pause_s if left is None else min(pause_s, left))
        return pause_s

    def _find_deadline(self, began: float) -> float | None:
        return None if self._timeout_s is None else began + self._timeout_s

    def _persist(
        self, error: OSError, line: Line, method: bytes, deadline: float | None
    ) -> wire.Fields:
        """Goes on after the kernel's timer, while there is time left."""
        patience = Patience(self.peer, method)
        while isinstance(error, BlockingIOError):
            patience.look()
            left = self.peer.time_left(method, self.options, deadline)
            line.limit(PATIENCE_S if left is None else min(PATIENCE_S, left))
            try:
                return line.go_on()
            except OSError as next_error:
                error = next_error
        if not line.is_sent:
            raise _TryAgain(error)
        if self.peer.may_repeat(method, self.options):
            self.peer.raise_verdict()
            raise _TryAgain(error)
        raise self.peer.lost(method, line.address) from error

    def add_stream(self, call: StreamCall) -> None:
        self._connections.add_stream(call)

    def put_back(self, line: Line) -> None:
        lines = self._wide if line.shares_memory else self._idle
        if len(lines) < _MAX_IDLE:
            line.was_used = True
            lines.append(line)
        else:
            line.close()

    def _open(self, lines: deque[Line], method: bytes, deadline: float | None) -> Line:
        peer = self.peer
        shares = lines is not self._idle
        attempt = partial(open_socket, peer, flags=greeting.SHARE if shares else 0)
        found: Connected = peer.wait_for(attempt, method, self.options, deadline)
        sock, address = found
        if shares and not (peer.shares_memory and sockets.is_unix(sock)):  # as we know by now
            sock.close()
            return self._open(self._idle, method, deadline)
        self._connections.add(sock)
        is_stale = find_is_stale(peer, address)
        if not shares:
            return Line(sock, peer.max_bytes, is_stale, address)
        from launchpad.courier.sharing.line import SharingLine

        return SharingLine(sock, peer, is_stale, address)

    def _may_share_memory(self) -> bool:
        """With the server where it is now, which decides on which line a large call is made."""
        self.peer.locate()
        return self.peer.shares_memory

    def _limit(self, line: Line, left: float) -> None:
        """Sets the kernel's timer, but for a fresh call, which has had the same before."""
        timeout_s = self._timeout_s
        is_fresh = timeout_s is not None and timeout_s * 0.999 < left <= timeout_s
        line.limit(min(PATIENCE_S, timeout_s if is_fresh and timeout_s is not None else left))


def _close_all(*idle: deque[Line]) -> None:
    for lines in idle:
        with contextlib.suppress(IndexError):
            while True:
                lines.pop().close()
