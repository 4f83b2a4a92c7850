"""The server's end of a connection whose calls overlap: what `client.futures` talks to.

One thread at a time has the turn: it reads many frames at once, runs their methods itself, in
order, and answers in batches. That costs no hop between threads. But a method that blocks must not
hold back those behind it, so:

- The leader of the pool looks every `STALL_S` whether the method that has the turn is still
  running. If so, the turn goes to another thread, which goes on with the queue; the first one
  delivers its one answer when it has it.
- A method known to be slow (a moving average of its past durations) never gets the turn. It goes
  to the pool straight away.

Answers therefore come in any order.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from launchpad.courier import notes, wire
from launchpad.courier.carriers import sockets
from launchpad.courier.counts import MethodCounts
from launchpad.courier.errors import ProtocolError
from launchpad.courier.greeting import Greeting
from launchpad.courier.later import Later
from launchpad.courier.methods import LATER, OURS, Reply, encode_outcome, fit
from launchpad.courier.pool import Job
from launchpad.courier.serving import Serving
from launchpad.courier.session import LINGER_S, Connection

if TYPE_CHECKING:
    from launchpad.courier.house import House

STALL_S = 0.002
_SLOW_S = 0.001  # from this average on a method goes to the pool
_FLUSH_BYTES = 64 << 10
_FLUSH_S = 0.001
_MAX_UNSENT = 4 << 20  # answers held back for a client that does not read
_SCRATCH = 128 << 10

_monotonic = time.monotonic


class _Call:
    """One call that has been read and has not been answered. As a job, it runs on its own."""

    is_waiting = False
    is_urgent = False

    def __init__(self, overlap: Overlap, frame: wire.Fields, now: float) -> None:
        self.frame = frame
        self.call_id, self.method = frame[1], frame[2]
        self.is_cancelled = False
        self._overlap = overlap
        self.late_at = now + frame[5] * 1e-6 if frame[5] else float("inf")

    def is_late(self) -> bool:
        return self.late_at < _monotonic()

    def run(self) -> None:
        self._overlap.run_apart(self)


class _Turn:
    """The right to read and run, as a job. Several may be running; the newest one has the turn."""

    is_waiting = False
    is_urgent = False

    def __init__(self, overlap: Overlap) -> None:
        self._overlap = overlap

    def run(self) -> None:
        self._overlap.serve(self)


class Overlap(Connection):
    """A connection that is served by one thread after the other, and sometimes by several."""

    def __init__(self, sock: socket.socket, house: House, said: Greeting) -> None:
        super().__init__(sock, house)
        self._counts = house.counts.of(said.peer)
        self._takes_bytes = said.max_bytes
        self._decoder = wire.Decoder(max_bytes=house.max_bytes, scratch_bytes=_SCRATCH)
        self._lock = threading.Lock()  # the turn and the queue
        self._turn: _Turn | None = None
        self._busy_since = 0.0  # when the method that has the turn began; 0 when none runs
        self._busy_with = b""
        self._queue: OrderedDict[int, _Call] = OrderedDict()
        self._apart: dict[int, _Call] = {}
        self._later: dict[int, Later] = {}
        self._durations: dict[bytes, float] = {}
        self._answers: deque[list[wire.Chunk]] = deque()
        self._unsent = 0
        self._flushed_at = 0.0
        self._write_lock = threading.Lock()
        self._is_closed = False
        self._unanswered = 0  # calls that have been read
        self._has_ended = False  # nothing more will be read
        sockets.set_receive_timeout(sock, LINGER_S)

    def take_job(self) -> Job:
        with self._lock:
            self._turn = _Turn(self)
            return self._turn

    def relieve(self, now: float) -> Job | None:
        """A job to go on in place of a method that blocks; None if none does."""
        with self._lock:
            if not self._busy_since or now - self._busy_since < STALL_S:
                return None
            self._learn(self._busy_with, now - self._busy_since)
            self._busy_since = 0.0
            self._turn = _Turn(self)
            return self._turn

    def serve(self, turn: _Turn) -> None:
        """Reads, runs and answers for as long as `turn` is the one that has the turn."""
        self._house.watch(self)
        try:
            self._flush()  # what the one before has left, if it was relieved
            while self._run_queue(turn) and self._read(turn):
                pass
            self._close_if_done()
        except (OSError, ProtocolError):
            self._give_up(turn)
        except BaseException:
            self._give_up(turn)
            raise

    def run_apart(self, call: _Call) -> None:
        """Runs one call on a thread of the pool, without the turn."""
        with self._lock:
            self._apart.pop(call.call_id, None)
        if not call.is_cancelled:
            self._answer(call)
            with contextlib.suppress(OSError):  # who reads will see it, and close
                self._flush()
            self._close_if_done()

    def close(self) -> None:
        self._house.unwatch(self)
        self.cut()  # wakes whoever is writing
        self._close_quietly()

    def _close_if_done(self) -> None:
        """After the end of the stream, the last answer closes: our own stop waits for answers."""
        with self._lock:
            is_done = self._has_ended and not self._unanswered and not self._answers
        if is_done:
            self._close_quietly()

    def _close_quietly(self) -> None:
        self._cancel_later()
        with self._write_lock:
            if not self._is_closed:
                self._is_closed = True
                super().close()

    def _cancel_later(self) -> None:
        for later in tuple(self._later.values()):
            later.cancel()  # nobody is there to hear it

    def abandon(self) -> None:
        if self._later:
            self.close()

    def _give_up(self, turn: _Turn) -> None:
        if self._turn is turn:
            self.close()
        else:
            self.cut()  # another thread reads: the descriptor is that one's to close
            self._close_if_done()  # unless it has come to the end already

    def _run_queue(self, turn: _Turn) -> bool:
        """Runs what has been read; False when another thread has taken over."""
        while (call := self._next_call(turn)) is not None:
            if self._durations.get(call.method, 0.0) > _SLOW_S:
                self._run_elsewhere(call)
                continue
            self._answer(call)
            if self._unsent > _FLUSH_BYTES or _monotonic() - self._flushed_at > _FLUSH_S:
                self._flush_between(turn)
        self._flush()
        return self._turn is turn

    def _next_call(self, turn: _Turn) -> _Call | None:
        with self._lock:
            if self._turn is not turn:
                return None
            if not self._queue:
                self._busy_since = 0.0
                return None
            _, call = self._queue.popitem(last=False)
            self._busy_since = _monotonic()
            self._busy_with = call.method
            return call

    def _run_elsewhere(self, call: _Call) -> None:
        with self._lock:
            self._apart[call.call_id] = call
        self._house.pool.submit(call)

    def _answer(self, call: _Call) -> None:
        _, call_id, method, body, buffers, timeout_us, said = call.frame
        counts = self._counts[method]
        counts.started += 1
        began = _monotonic()
        if self._house.is_stopping and not method.startswith(OURS):
            reply: Reply = (wire.NOT_RUN, wire.STOPPING, [])
        elif timeout_us and call.is_late():
            reply = (wire.NOT_RUN, wire.LATE, [])
        else:
            if timeout_us or said:
                until = call.late_at if timeout_us else None
                on_behalf_of = Serving(until, notes.trace_of(said))
                reply = self._house.methods.answer_for(on_behalf_of, method, body, buffers)
            else:
                reply = self._house.methods.answer(method, body, buffers)
            self._learn(method, _monotonic() - began)
        settle = partial(self._settle, call_id, counts, began, wire.size(body, buffers))
        if reply[0] == LATER:
            self._answer_later(call_id, reply[1], settle)
        else:
            settle(reply)

    def _answer_later(self, call_id: int, later: Later, settle: Callable[[Reply], None]) -> None:
        self._later[call_id] = later

        def answer() -> None:
            self._later.pop(call_id, None)
            settle(encode_outcome(later))
            with contextlib.suppress(OSError):  # who reads will see it, and close
                self._flush()
            self._close_if_done()

        self._house.owe(later, answer)

    def _settle(
        self, call_id: int, counts: MethodCounts, began: float, n_in: int, reply: Reply
    ) -> None:
        kind, body, views = fit(reply, self._takes_bytes)
        chunks = wire.encode(kind, call_id, b"", body, views)
        if kind != wire.RESULT:
            counts.errors += 1
        counts.finish(_monotonic() - began, n_in, wire.size(body, views))
        self._answers.append(chunks)
        with self._lock:
            self._unanswered -= 1
        self._unsent += len(chunks[0]) if len(chunks) == 1 else _FLUSH_BYTES

    def _learn(self, method: bytes, duration_s: float) -> None:
        average = self._durations.get(method)
        if average is None:
            self._durations[method] = duration_s
        else:
            self._durations[method] = average + 0.2 * (duration_s - average)

    def _flush_between(self, turn: _Turn) -> None:
        """Flushes with methods still queued, which must not look like a method that blocks."""
        with self._lock:
            if self._turn is turn:
                self._busy_since = 0.0
        self._flush()

    def _flush(self) -> None:
        """Writes all answers there are, unless another thread is at it, who will."""
        self._flushed_at = _monotonic()
        while self._answers and self._write_lock.acquire(self._unsent > _MAX_UNSENT):
            try:
                self._unsent = 0
                chunks = self._take_answers()
                if not self._is_closed:
                    sockets.send_all(self.sock, chunks)
            finally:
                self._write_lock.release()

    def _take_answers(self) -> list[wire.Chunk]:
        chunks: list[wire.Chunk] = []
        with contextlib.suppress(IndexError):
            while True:
                chunks += self._answers.popleft()
        if len(chunks) > 1 and all(len(chunk) < 4096 for chunk in chunks):
            return [b"".join(chunks)]
        return chunks

    def _read(self, turn: _Turn) -> bool:
        """Reads once; False when nothing came and the connection was parked, or it has ended."""
        turn.is_waiting = True
        try:
            n = self.sock.recv_into(self._decoder.buffer)
        except BlockingIOError:
            self._house.unwatch(self)
            self._park()
            return False
        finally:
            turn.is_waiting = False
        if not n:
            self._house.unwatch(self)
            self._has_ended = True
            if not self._house.is_stopping:
                self._cancel_later()
            return False
        self._sort(self._decoder.received(n))
        return True

    def _sort(self, frames: list[wire.Fields]) -> None:
        now = _monotonic()
        with self._lock:
            for frame in frames:
                if frame[0] == wire.CALL:
                    self._queue[frame[1]] = _Call(self, frame, now)
                    self._unanswered += 1
                elif frame[0] == wire.CANCEL:
                    self._cancel(frame[1])

    def _cancel(self, call_id: int) -> None:
        call = self._queue.pop(call_id, None) or self._apart.pop(call_id, None)
        if (later := self._later.get(call_id)) is not None:
            later.cancel()
        if call is not None:
            call.is_cancelled = True
            self._unanswered -= 1
