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

Who has the turn needs no lock for a call: a frame taken from the queue is one's own, and whoever has lost
the turn meanwhile notices before the next one. At worst it takes one frame more than it should, and runs it
side by side with its successor.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from launchpad.courier import wire
from launchpad.courier.answers import Answers
from launchpad.courier.carriers import sockets
from launchpad.courier.counts import MethodCounts
from launchpad.courier.errors import ProtocolError
from launchpad.courier.greeting import Greeting
from launchpad.courier.later import Later
from launchpad.courier.methods import LATER, Reply, encode_outcome, fit
from launchpad.courier.pool import Job
from launchpad.courier.serving import Serving
from launchpad.courier.session import LINGER_S, Connection

if TYPE_CHECKING:
    from launchpad.courier.house import House

STALL_S = 0.002
_SLOW_S = 0.001  # from this average on a method goes to the pool
_MOST_S = 0.004  # that a single call counts for: it may have waited for a core
_NOTABLE_S = 0.0002  # a method that never took as long has no average
_FLUSH_BYTES = 64 << 10
_FLUSH_S = 0.001
_SCRATCH = 128 << 10

_monotonic = time.monotonic
_encode_small = wire.encode_small


class _Turn:
    """The right to read and run, as a job. Several may be running; the newest one has the turn."""

    def __init__(self, overlap: Overlap) -> None:
        self._overlap = overlap
        self.is_waiting = False
        self.busy_since = 0.0  # when the method that it runs began; 0 when none runs
        self.method = b""
        self.is_relieved = False
        self._seen_busy_since = 0.0

    def run(self) -> None:
        self._overlap.serve(self)

    def seems_stuck(self) -> bool:
        """At the last look it ran this very call already: one look alone may meet it anywhere."""
        seen, self._seen_busy_since = self._seen_busy_since, self.busy_since
        return bool(seen) and seen == self.busy_since


class _Apart:
    """A call that runs without the turn, as a job."""

    is_waiting = False

    def __init__(self, overlap: Overlap, frame: wire.Fields, read_at: float) -> None:
        self._overlap = overlap
        self.frame = frame
        self.read_at = read_at

    def run(self) -> None:
        self._overlap.run_apart(self)


class Overlap(Connection):
    """A connection that is served by one thread after the other, and sometimes by several."""

    def __init__(self, sock: socket.socket, house: House, said: Greeting) -> None:
        super().__init__(sock, house)
        self._counts = house.counts.of(said.peer)
        self._takes_bytes = said.max_bytes
        self._takes_small = min(said.max_bytes, wire.SMALL)
        self._decoder = wire.Decoder(max_bytes=house.max_bytes, scratch_bytes=_SCRATCH)
        self._lock = threading.Lock()
        self._turn: _Turn | None = None
        self._queue: deque[wire.Fields] = deque()  # calls that have been read, for the turn
        self._read_at = 0.0
        self._apart: dict[int, _Apart] = {}  # given to the pool, and not begun
        self._later: dict[int, Later] = {}
        self._elsewhere = 0  # calls that will be answered, but not by the turn
        self._durations: dict[bytes, float] = {}
        self._answers = Answers(sock)
        self._has_ended = False  # nothing more will be read
        self._is_closed = False
        sockets.set_receive_timeout(sock, LINGER_S)

    def take_job(self) -> Job:
        with self._lock:
            self._turn = _Turn(self)
            return self._turn

    def relieve(self, now: float) -> Job | None:
        """A job to go on in place of a method that blocks; None if none does."""
        with self._lock:
            turn = self._turn
            if turn is None or not turn.seems_stuck():
                return None
            self._learn(turn.method, now - turn.busy_since)
            turn.is_relieved = True
            self._elsewhere += 1
            self._turn = _Turn(self)
            return self._turn

    def serve(self, turn: _Turn) -> None:
        """Reads, runs and answers for as long as `turn` is the one that has the turn."""
        self._house.watch(self)
        try:
            self._answers.flush()
            while self._run_queue(turn) and self._read(turn):
                pass
            self._answers.flush()
        except (OSError, ProtocolError):
            self._give_up(turn)
        except BaseException:
            self._give_up(turn)
            raise
        finally:
            if turn.is_relieved:
                self._deliver()

    def run_apart(self, call: _Apart) -> None:
        """Runs one call on a thread of the pool, without the turn."""
        if self._apart.pop(call.frame[1], None) is not None:
            began = _monotonic()
            counts = self._counts[call.frame[2]]
            counts.started += 1
            self._reply(call.frame, self._run(call.frame, call.read_at), counts, began)
            self._learn(call.frame[2], _monotonic() - began)
        self._deliver()

    def close(self) -> None:
        self._house.unwatch(self)
        self.cut()  # wakes whoever is writing
        self._close_quietly()

    def _deliver(self) -> None:
        """Sends the answer to a call that was not the turn's; the last one closes after the end."""
        with contextlib.suppress(OSError):  # who reads will see it, and close
            self._answers.flush()
        with self._lock:
            self._elsewhere -= 1
        self._close_if_done()

    def _close_if_done(self) -> None:
        with self._lock:
            is_done = self._has_ended and not self._elsewhere
        if is_done:
            self._close_quietly()

    def _close_quietly(self) -> None:
        self._cancel_later()
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
        if not was_closed:
            self._answers.finish(super().close)

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

    def _run_queue(self, turn: _Turn) -> bool:
        """Runs what has been read; False when another thread has taken over."""
        popleft, put, flush = self._queue.popleft, self._answers.put, self._answers.flush
        slow, all_counts = self._durations, self._counts
        house, answer = self._house, self._house.methods.answer
        takes = self._takes_small
        unsent, began = 0, _monotonic()
        flushed_at = began
        while self._turn is turn:
            try:
                frame = popleft()
            except IndexError:
                break
            _, call_id, method, body, buffers, timeout_us, notes = frame
            if slow and slow.get(method, 0.0) > _SLOW_S:
                self._run_elsewhere(frame)
                continue
            turn.method = method
            turn.busy_since = began
            counts = all_counts[method]
            counts.started += 1
            if timeout_us or notes or house.is_stopping:
                reply = self._run(frame, self._read_at)
            else:
                reply = answer(method, body, buffers)
            now = _monotonic()
            if now - began > _NOTABLE_S or slow:
                self._learn(method, now - began)
            kind, result, views = reply
            if kind != wire.RESULT or views or len(result) > takes:
                self._reply(frame, reply, counts, began)
            else:
                put(_encode_small(kind, call_id, b"", result))
                counts.finish(now - began, len(body), len(result))
                unsent += len(result) + 32
            began = now
            if unsent > _FLUSH_BYTES or now - flushed_at > _FLUSH_S:
                turn.busy_since = 0.0  # calls still queued must not look like one that blocks
                flush()
                began = flushed_at = _monotonic()
                unsent = 0
        flush()
        with self._lock:
            turn.busy_since = 0.0
            return self._turn is turn

    def _run(self, frame: wire.Fields, read_at: float) -> Reply:
        """Runs a call that may have a deadline, or notes, if it still may."""
        _, _, method, body, buffers, timeout_us, notes = frame
        if self._house.is_stopping:
            return wire.NOT_RUN, wire.STOPPING, []
        if not timeout_us and not notes:
            return self._house.methods.answer(method, body, buffers)
        until = read_at + timeout_us * 1e-6 if timeout_us else None
        if until is not None and until < _monotonic():
            return wire.NOT_RUN, wire.LATE, []
        return self._house.methods.answer_for(Serving(until), method, body, buffers)

    def _run_elsewhere(self, frame: wire.Fields) -> None:
        with self._lock:
            self._elsewhere += 1
        call = self._apart[frame[1]] = _Apart(self, frame, self._read_at)
        self._house.pool.submit(call)

    def _reply(self, frame: wire.Fields, reply: Reply, counts: MethodCounts, began: float) -> None:
        if reply[0] == LATER:
            self._reply_later(frame, reply[1], counts, began)
            return
        kind, body, views = fit(reply, self._takes_bytes)
        self._answers.put_chunks(wire.encode(kind, frame[1], b"", body, views))
        if kind != wire.RESULT:
            counts.errors += 1
        counts.finish(_monotonic() - began, len(frame[3]), len(body))

    def _reply_later(
        self, frame: wire.Fields, later: Later, counts: MethodCounts, began: float
    ) -> None:
        call_id = frame[1]
        self._later[call_id] = later
        with self._lock:
            self._elsewhere += 1

        def answer() -> None:
            self._later.pop(call_id, None)
            self._reply(frame, encode_outcome(later), counts, began)
            self._deliver()

        self._house.owe(later, answer)

    def _learn(self, method: bytes, duration_s: float) -> None:
        average = self._durations.get(method, 0.0)
        self._durations[method] = average + 0.2 * (min(duration_s, _MOST_S) - average)

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
            with self._lock:
                self._has_ended = True
            if not self._house.is_stopping:
                self._cancel_later()
            self._close_if_done()
            return False
        self._read_at = _monotonic()
        self._sort(self._decoder.received(n))
        return True

    def _sort(self, frames: list[wire.Fields]) -> None:
        cancelled = {frame[1] for frame in frames if frame[0] == wire.CANCEL}
        for call_id in cancelled:
            self._cancel(call_id)
        self._queue.extend([f for f in frames if f[0] == wire.CALL and f[1] not in cancelled])

    def _cancel(self, call_id: int) -> None:
        if (later := self._later.get(call_id)) is not None:
            later.cancel()
        self._apart.pop(call_id, None)
