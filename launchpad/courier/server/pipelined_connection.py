"""The server's end of a connection whose calls overlap, such as those of `client.futures`.

One thread at a time has the turn. It reads many frames at once, runs their methods itself, in
order, and answers in batches. So no call moves between threads. But a method that blocks must not
hold back the calls behind it, so:

- The leader of the pool checks every `STALL_S` if the turn still runs the same call as at the last
  check. If so, the turn goes to another thread, which continues with the queue. The first thread
  still sends the answer to its one call.
- A method known to be slow (by a moving average of its durations) never runs in the turn. Its calls
  go straight to the pool.

So answers come in any order.

Running a call takes no lock. A frame belongs to the thread that took it from the queue. A thread that
has lost the turn notices that before the next frame. At worst it takes one more frame, and runs it side
by side with its successor. The lock is only for what happens once per batch: beginning and ending a turn.

Turns, and calls that run outside of a turn, are jobs of the pool.
"""

from __future__ import annotations

import contextlib
import pickle
import socket
import threading
import time
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from launchpad.courier import caller
from launchpad.courier.call_stack import CallContext
from launchpad.courier.codec import compression
from launchpad.courier.errors import ProtocolError
from launchpad.courier.promise import Promise
from launchpad.courier.protocol import framing, joined
from launchpad.courier.protocol.framing import BUILTIN_PREFIX
from launchpad.courier.protocol.handshake import ClientHello
from launchpad.courier.server.connection import LINGER_S, ServerConnection
from launchpad.courier.server.joined_calls import JoinedCalls, join
from launchpad.courier.server.replies import BARE_VALUE, PROMISE, Reply, encode_outcome, fit
from launchpad.courier.server.thread_pool import FunctionJob, Job
from launchpad.courier.telemetry.counters import MethodCounts
from launchpad.courier.transport import stream_socket
from launchpad.courier.transport.stream_socket import Socket
from launchpad.courier.transport.write_queue import WriteQueue

if TYPE_CHECKING:
    from launchpad.courier.server.services import ServerServices

STALL_S = 0.002
_SLOW_S = 0.001  # calls of a method with a longer average go to the pool
# In the average, a call counts for no more than this, because it may only have waited for a core.
_MOST_S = 0.004
_NOTABLE_S = 0.0002  # while no call takes longer than this, the connection keeps no averages
_FLUSH_BYTES = 64 << 10
_FLUSH_S = 0.001
_SCRATCH = 128 << 10
# How many bytes may wait for a client that does not read. With more, threads wait for the client.
_MAX_WAITING = 4 << 20

_monotonic = time.monotonic
_encode_small = framing.encode_small
_CALL = framing.CALL
_RESULT = framing.RESULT


class PipelinedConnection(ServerConnection):
    """A connection that one thread after the other serves, and sometimes several threads at once."""

    def __init__(self, sock: Socket, core: ServerServices, hello: ClientHello) -> None:
        super().__init__(sock, core, hello.peer)
        self._counts = core.counts.of(hello.peer.name)
        self._takes_bytes = hello.max_bytes
        self._decoder = framing.FrameDecoder(max_bytes=core.max_bytes, most_scratch_bytes=_SCRATCH)
        self._answers = WriteQueue(sock, _MAX_WAITING, join)
        # This lock is held to begin and to end a turn, once per batch (see above).
        self._lock = threading.Lock()
        self._turn: ReadTurn | None = None
        # Frames that were read, for the thread that has the turn. Calls that share a frame leave it one by
        # one.
        self._queue: deque[framing.Fields | JoinedCalls] = deque()
        self._read_at = 0.0
        # Average durations in seconds. The dict is empty until a call takes longer than `_NOTABLE_S`.
        self._averages: dict[MethodCounts, float] = {}
        self._offloaded: dict[int, Job] = {}  # calls that the pool has not begun yet
        # The callers of calls that run while another thread reads.
        self._beside: set[CallerOnPipeline] = set()
        self._promises: dict[int, Promise] = {}
        self._n_unanswered = 0  # calls that will be answered, but not by the turn
        self._has_ended = False  # once True, nothing more is read
        self._is_closed = False
        stream_socket.set_receive_timeout(sock, LINGER_S)

    def take_job(self) -> Job:
        with self._lock:
            self._turn = ReadTurn(self)
            return self._turn

    def take_over_if_stalled(self, now: float) -> Job | None:
        """If a method seems to block, give the turn to a new job and return the job, else return None."""
        with self._lock:
            turn = self._turn
            if turn is None or turn.runs is None or not turn.seems_blocked():
                return None
            self._update_average(turn.runs, now - turn.since)
            turn.is_replaced = True
            if turn.joined_calls is not None:
                self._queue.appendleft(turn.joined_calls)
            self._beside.add(turn)
            self._n_unanswered += 1
            self._turn = ReadTurn(self)
            return self._turn

    def serve(self, turn: ReadTurn) -> None:
        """Read, run and answer calls as long as `turn` is the connection's current turn."""
        self._core.watch(self)
        token = caller.current.set(turn)
        try:
            while self._run_queue(turn) and self._read(turn):
                pass
        except BaseException as error:
            if self._turn is turn:
                self.close()
            else:
                self.cut()  # another thread reads, so that thread must close the descriptor
            if not isinstance(error, OSError | ProtocolError):
                raise
        finally:
            caller.current.reset(token)
            if turn.is_replaced:
                self._beside.discard(turn)
                self._deliver()

    def close(self) -> None:
        self._core.unwatch(self)
        self.cut()  # wakes a thread that is writing
        self._close_quietly()

    def abandon(self) -> None:
        if self._promises:
            self.close()

    # The turn.

    def _run_queue(self, turn: ReadTurn) -> bool:
        """Run the calls that have been read. Return False if another thread has taken over.

        Calls that share a frame run one after the other, like calls in frames of their own.
        """
        core = self._core
        take = self._queue.popleft
        put_answer = self._answers.put
        answer = core.methods.answer
        averages = self._averages
        may_join = self._takes_bytes >= joined.LIMIT
        takes = min(self._takes_bytes, framing.SMALL)
        unsent = 0
        began = flushed_at = _monotonic()
        while self._turn is turn:
            try:
                entry = take()
            except IndexError:
                break
            calls: Iterable[tuple[int, Any]]
            if isinstance(entry, JoinedCalls):
                if not self._begin_small(turn, entry):
                    continue
                joined_calls = entry
                frame = entry.frame
                calls = entry.take_all()
                began = _monotonic()
            else:
                joined_calls = None
                frame = entry
                calls = ((frame[1], None),)
            _, _, method, body, buffers, timeout_us, headers_in = frame
            counts = self._counts[method]
            turn.runs = counts
            for call_id, small_args in calls:
                is_slow = averages and averages.get(counts, 0.0) > _SLOW_S
                if is_slow or (joined_calls is not None and core.is_stopping):
                    if joined_calls is not None:
                        frame = joined_calls.alone(call_id, small_args)
                        counts.bytes_in -= joined_calls.share  # its own frame is counted instead
                    self._offload(frame)
                    continue
                turn.call_id = call_id
                turn.since = began
                counts.started += 1
                if timeout_us or headers_in or (core.is_stopping and joined_calls is None):
                    reply = self._run(frame, self._read_at)
                else:
                    reply = answer(method, body, buffers, small_args)
                now = _monotonic()
                took_s = now - began
                if took_s > _NOTABLE_S or averages:
                    self._update_average(counts, took_s)
                kind, result, views = reply
                if kind == BARE_VALUE and may_join:
                    put_answer((call_id, result, counts))  # `join` counts its bytes
                    # INLINE: MethodCounts.finish(counts, took_s, 0, 0)
                    bucket = int(took_s * 1e6).bit_length()
                    counts.total_s += took_s
                    counts.buckets[bucket] += 1
                else:
                    if kind == BARE_VALUE:
                        kind = _RESULT
                        result = pickle.dumps(result, 5)
                    if kind != _RESULT or views or buffers or headers_in or len(result) > takes:
                        frame = _CALL, call_id, method, body, buffers, 0, headers_in
                        self._answer(frame, (kind, result, views), counts, began)
                    else:  # a shorter form of `_answer` for most calls
                        put_answer(_encode_small(_RESULT, call_id, b"", result))
                        counts.finish(took_s, len(body), len(result))
                        unsent += len(result)
                began = now
                if unsent > _FLUSH_BYTES or now - flushed_at > _FLUSH_S:
                    # While the thread waits for the client to read, it runs no method that could block it.
                    turn.since = 0.0
                    self._answers.flush()
                    unsent = 0
                    began = flushed_at = _monotonic()
                if self._turn is not turn:
                    break
        turn.joined_calls = None
        turn.since = 0.0
        self._answers.flush()
        # Take the lock, because `take_over_if_stalled` may be giving the turn away just now.
        with self._lock:
            return self._turn is turn

    def _begin_small(self, turn: ReadTurn, calls: JoinedCalls) -> bool:
        """Begin the calls of a frame. If the turn is lost, offload them and return False."""
        counts = self._counts[calls.method]
        with self._lock:
            # Another thread may have taken over since this thread took the frame from the queue. The other
            # thread doesn't know of the frame.
            has_turn = self._turn is turn
            if has_turn:
                turn.joined_calls = calls
                turn.runs = counts
        if not has_turn:
            for call_id, args in calls.take_all():
                self._offload(calls.alone(call_id, args))
            return False
        counts.bytes_in += calls.size
        calls.size = 0
        return True

    def _offload(self, frame: framing.Fields) -> None:
        """Give a call to the pool."""
        _, call_id, method, *_ = frame
        with self._lock:
            self._n_unanswered += 1
        run = partial(self._run_offloaded, frame, self._read_at)
        job = FunctionJob(run, is_urgent=method in self._core.methods.urgent)
        self._offloaded[call_id] = job
        self._core.pool.submit(job)

    def _read(self, turn: ReadTurn) -> bool:
        """Read once. Return False if the connection has ended, or was parked because nothing came."""
        core = self._core
        flags = 0 if core.pool.may_linger else socket.MSG_DONTWAIT
        turn.is_waiting = True
        try:
            n = self.sock.recv_into(self._decoder.buffer, 0, flags)
        except BlockingIOError:
            core.unwatch(self)
            core.poller.park(self)
            return False
        finally:
            turn.is_waiting = False
        # The client sends no more, or the server has hung up and waits for calls that still run.
        if not n:
            core.unwatch(self)
            with self._lock:
                self._has_ended = True
            if not core.is_stopping:
                for pending in tuple(self._promises.values()):
                    pending.cancel()  # no client is left to receive the result
            self._close_if_done()
            return False
        self._read_at = _monotonic()
        frames = self._decoder.received(n)
        cancelled = {frame[1] for frame in frames if frame[0] == framing.CANCEL}
        for call_id in cancelled:
            self._offloaded.pop(call_id, None)
            promise = self._promises.get(call_id)
            if promise is not None:
                promise.cancel()
            core.methods.unclaimed_streams.drop(self, call_id)
        if cancelled:
            for beside in tuple(self._beside):
                if beside.call_id in cancelled:
                    beside.cancelled_id = beside.call_id
        calls = [
            f for f in frames if (f[0] == _CALL and f[1] not in cancelled) or f[0] == framing.CALLS
        ]
        urgent = core.methods.urgent
        if urgent:
            calls.sort(key=lambda frame: frame[2] not in urgent)
        self._queue.extend([f if f[0] == _CALL else JoinedCalls(f, cancelled) for f in calls])
        return True

    def _update_average(self, counts: MethodCounts, duration_s: float) -> None:
        average = self._averages.get(counts, 0.0)
        self._averages[counts] = average + 0.2 * (min(duration_s, _MOST_S) - average)

    # A call.

    def _run_offloaded(self, frame: framing.Fields, read_at: float) -> None:
        """Run a call that was given to the pool, without the turn."""
        _, call_id, method, *_ = frame
        if self._offloaded.pop(call_id, None) is not None:  # else it was cancelled
            counts = self._counts[method]
            counts.started += 1
            began = _monotonic()
            beside = CallerOnPipeline(self, call_id)
            self._beside.add(beside)
            token = caller.current.set(beside)
            try:
                try:
                    reply = self._run(frame, read_at)
                finally:
                    caller.current.reset(token)
                self._update_average(counts, _monotonic() - began)
                self._answer(frame, reply, counts, began)
            finally:
                self._beside.discard(beside)
        self._deliver()

    def _run(self, frame: framing.Fields, read_at: float) -> Reply:
        """Run a call that may have a deadline or headers, unless the deadline is over or the server stops."""
        _, _, method, body, buffers, timeout_us, headers_in = frame
        if self._core.is_stopping and not method.startswith(BUILTIN_PREFIX):
            return framing.NOT_RUN, framing.STOPPING, []
        until = read_at + timeout_us * 1e-6 if timeout_us else None
        if until is not None and until < _monotonic():
            return framing.NOT_RUN, framing.LATE, []
        if not headers_in:
            return self._core.methods.answer_for(CallContext(until), method, body, buffers)
        headers = framing.decode_headers(headers_in)
        body, buffers = compression.unpack_if_packed(headers, body, buffers, self._core.max_bytes)
        call_context = CallContext(
            until, headers.get(framing.TRACE, b""), headers.get(framing.RECORDED, b"")
        )
        return self._core.methods.answer_for(call_context, method, body, buffers)

    def _answer(
        self, frame: framing.Fields, reply: Reply, counts: MethodCounts, began: float
    ) -> None:
        """Queue the answer to a call. If the outcome comes later, the pool queues the answer then."""
        _, call_id, _, body_in, buffers_in, _, headers_in = frame
        if reply[0] == PROMISE:
            promise = self._promises[call_id] = reply[1]
            with self._lock:
                self._n_unanswered += 1

            def answer() -> None:
                self._promises.pop(call_id, None)
                self._answer(frame, encode_outcome(promise), counts, began)
                self._deliver()

            self._core.send_when_done(promise, answer)
            # The thread that reads may have seen the end of the connection, or the cancellation of this call,
            # after the method returned and before the promise was stored above. Then that thread did not
            # cancel the promise.
            if self._no_one_waits_for(call_id):
                promise.cancel()
            return
        if reply[0] == framing.STREAM:  # a stream needs a connection of its own
            ticket = self._core.methods.unclaimed_streams.put(reply[1], self, counts, call_id)
            reply = framing.STREAM, ticket, []
        kind, body, views = fit(reply, self._takes_bytes)
        headers_out = b""
        if headers_in and compression.is_packed(headers_in):
            body, views, headers_out = compression.pack_if_worthwhile(body, views)
        self._answers.put_chunks(framing.encode(kind, call_id, b"", body, views, 0, headers_out))
        if kind == framing.ERROR or kind == framing.NOT_RUN:
            counts.errors += 1
        n_in = framing.size(body_in, buffers_in)
        n_out = framing.size(body, views)
        counts.finish(_monotonic() - began, n_in, n_out)

    def _no_one_waits_for(self, call_id: int) -> bool:
        if self._has_ended:
            # A server that is stopping has hung up itself, and its clients still wait for running calls.
            return not self._core.is_stopping
        return any(beside.cancelled_id == call_id for beside in tuple(self._beside))

    def _deliver(self) -> None:
        """Send the answer to a call that ran outside of the turn. After the last answer, close."""
        with contextlib.suppress(OSError):  # the thread that reads will see the error, and close
            self._answers.flush()
        with self._lock:
            self._n_unanswered -= 1
        self._close_if_done()

    # The end.

    def _close_if_done(self) -> None:
        with self._lock:
            is_done = self._has_ended and not self._n_unanswered
        if is_done:
            self._close_quietly()

    def _close_quietly(self) -> None:
        for promise in tuple(self._promises.values()):
            promise.cancel()  # no client is left to receive the result
        self._core.methods.unclaimed_streams.drop(self)
        with self._lock:
            was_closed = self._is_closed
            self._is_closed = True
        if not was_closed:
            self._answers.close(is_last_write=True)
            self.part()


class CallerOnPipeline:
    """The client, as the caller of the calls that one thread runs one after the other."""

    def __init__(self, connection: PipelinedConnection, call_id: int = 0) -> None:
        self.call_id = call_id  # of the call that runs, or ran last
        self.cancelled_id = 0  # of a call that was cancelled while it ran
        self._connection = connection

    @property
    def peer(self) -> caller.Peer:
        return self._connection.peer

    def is_gone(self, call_id: int = 0) -> bool:
        is_cancelled = bool(call_id) and call_id == self.cancelled_id
        return is_cancelled or self._connection.is_gone()


class ReadTurn(CallerOnPipeline, Job):
    """The right to read, and to run what was read. Only the newest turn of a connection has this right.

    The thread that has the turn records here, without a lock, what it runs. The pool's leader reads that.
    """

    def __init__(self, connection: PipelinedConnection) -> None:
        super().__init__(connection)
        # True once another turn has replaced this one. This turn then still has one answer to send.
        self.is_replaced = False
        self.runs: MethodCounts | None = None  # the counts of the method that runs
        self.since = 0.0  # when the running call began; 0 if no call runs
        self.joined_calls: JoinedCalls | None = None  # the calls of the frame that it runs
        self._seen_since = 0.0

    def run(self) -> None:
        self._connection.serve(self)

    def seems_blocked(self) -> bool:
        """Return True if the turn already ran this call at the last check. One check proves nothing."""
        previous_since = self._seen_since
        self._seen_since = self.since
        return bool(previous_since) and previous_since == self.since
