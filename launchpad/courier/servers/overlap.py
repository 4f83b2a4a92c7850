"""The server's end of a connection whose calls overlap: what `client.futures` talks to.

One thread at a time has the turn: it reads many frames at once, runs their methods itself, in
order, and answers in batches. That costs no hop between threads. But a method that blocks must not
hold back those behind it, so:

- The leader of the pool looks every `STALL_S` whether the turn still runs the call that it ran at
  the last look. If so, the turn goes to another thread, which goes on with the queue; the first
  one delivers its one answer when it has it.
- A method known to be slow (a moving average of its past durations) never gets the turn. It goes
  to the pool straight away.

Answers therefore come in any order.

A call takes no lock on its way. A frame taken from the queue is one's own, and whoever has lost the
turn meanwhile notices before the next frame; at worst it takes one more, and runs it side by side
with its successor. The lock is for what happens once in a batch: to begin and to end a turn.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from launchpad.courier.carriers import sockets
from launchpad.courier.carriers.sockets import Socket
from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol import compression, notes, wire
from launchpad.courier.protocol.greeting import Greeting
from launchpad.courier.servers.answers import Answers
from launchpad.courier.servers.connection import LINGER_S, Connection
from launchpad.courier.servers.later import Later
from launchpad.courier.servers.methods import LATER, OURS, Reply, encode_outcome, fit
from launchpad.courier.servers.pool import Job
from launchpad.courier.servers.serving import Serving
from launchpad.courier.servers.turn import Apart, Turn
from launchpad.courier.watching.counts import MethodCounts

if TYPE_CHECKING:
    from launchpad.courier.servers.house import House

STALL_S = 0.002
_SLOW_S = 0.001  # from this average on a method goes to the pool
_MOST_S = 0.004  # that one call counts for: it may only have waited for a core
_NOTABLE_S = 0.0002  # a method that has never taken as long has no average
_FLUSH_BYTES = 64 << 10
_FLUSH_S = 0.001
_SCRATCH = 128 << 10

_monotonic = time.monotonic
_encode_small, _RESULT = wire.encode_small, wire.RESULT


class Overlap(Connection):
    """A connection that is served by one thread after the other, and sometimes by several."""

    def __init__(self, sock: Socket, house: House, said: Greeting) -> None:
        super().__init__(sock, house)
        self._counts = house.counts.of(said.peer)
        self._takes_bytes = said.max_bytes
        self._decoder = wire.Decoder(max_bytes=house.max_bytes, most_scratch_bytes=_SCRATCH)
        self._answers = Answers(sock)
        self._lock = threading.Lock()
        self._turn: Turn | None = None
        self._queue: deque[wire.Fields] = deque()  # calls that have been read, for the turn
        self._read_at = 0.0
        self._averages: dict[MethodCounts, float] = {}  # seconds; of few methods
        self._apart: dict[int, Apart] = {}  # given to the pool, and not begun
        self._later: dict[int, Later] = {}
        self._n_elsewhere = 0  # calls that will be answered, but not by the turn
        self._has_ended = False  # nothing more will be read
        self._is_closed = False
        sockets.set_receive_timeout(sock, LINGER_S)

    def take_job(self) -> Job:
        with self._lock:
            self._turn = Turn(self)
            return self._turn

    def relieve(self, now: float) -> Job | None:
        """A job to go on in place of a method that blocks; None if none does."""
        with self._lock:
            turn = self._turn
            if turn is None or turn.runs is None or not turn.seems_stuck():
                return None
            self._learn(turn.runs, now - turn.since)
            turn.is_relieved = True
            self._n_elsewhere += 1
            self._turn = Turn(self)
            return self._turn

    def serve(self, turn: Turn) -> None:
        """Reads, runs and answers for as long as `turn` is the one that has the turn."""
        self._house.watch(self)
        try:
            while self._run_queue(turn) and self._read(turn):
                pass
        except (OSError, ProtocolError):
            self._give_up(turn)
        except BaseException:
            self._give_up(turn)
            raise
        finally:
            if turn.is_relieved:
                self._deliver()

    def run_apart(self, call: Apart) -> None:
        """Runs a call without the turn."""
        _, call_id, method, *_ = call.frame
        if self._apart.pop(call_id, None) is not None:  # if it has not been cancelled
            counts = self._counts[method]
            counts.started += 1
            began = _monotonic()
            reply = self._run(call.frame, call.read_at)
            self._learn(counts, _monotonic() - began)
            self._answer(call.frame, reply, counts, began)
        self._deliver()

    def close(self) -> None:
        self._house.unwatch(self)
        self.cut()  # wakes whoever is writing
        self._close_quietly()

    def abandon(self) -> None:
        if self._later:
            self.close()

    # The turn.

    def _run_queue(self, turn: Turn) -> bool:
        """Runs what has been read; False when another thread has taken over."""
        take, put, answer = self._queue.popleft, self._answers.put, self._house.methods.answer
        house, all_counts, averages = self._house, self._counts, self._averages
        takes = min(self._takes_bytes, wire.SMALL)
        unsent = 0
        began = flushed_at = _monotonic()
        while self._turn is turn:
            try:
                frame = take()
            except IndexError:
                break
            _, call_id, method, body, buffers, timeout_us, said = frame
            counts = all_counts[method]
            if averages and averages.get(counts, 0.0) > _SLOW_S:
                self._run_elsewhere(frame)
                continue
            turn.runs = counts
            turn.since = began
            counts.started += 1
            if timeout_us or said or house.is_stopping:
                reply = self._run(frame, self._read_at)
            else:
                reply = answer(method, body, buffers)
            now = _monotonic()
            if now - began > _NOTABLE_S or averages:
                self._learn(counts, now - began)
            kind, result, views = reply
            if kind != _RESULT or views or buffers or said or len(result) > takes:
                self._answer(frame, reply, counts, began)
            else:  # the same for the many
                put(_encode_small(_RESULT, call_id, b"", result))
                counts.finish(now - began, len(body), len(result))
                unsent += len(result)
            began = now
            if unsent > _FLUSH_BYTES or now - flushed_at > _FLUSH_S:
                turn.since = 0.0  # who waits for the client to read is not stuck in a method
                self._answers.flush()
                unsent = 0
                began = flushed_at = _monotonic()
        turn.since = 0.0
        self._answers.flush()
        with self._lock:  # `relieve` may have looked before
            return self._turn is turn

    def _read(self, turn: Turn) -> bool:
        """Reads once; False when nothing came and the connection was parked, or it has ended."""
        flags = 0 if self._house.pool.may_linger else socket.MSG_DONTWAIT
        turn.is_waiting = True
        try:
            n = self.sock.recv_into(self._decoder.buffer, 0, flags)
        except BlockingIOError:
            self._house.unwatch(self)
            self._park()
            return False
        finally:
            turn.is_waiting = False
        if not n:
            self._end()
            return False
        self._read_at = _monotonic()
        self._sort(self._decoder.received(n))
        return True

    def _sort(self, frames: list[wire.Fields]) -> None:
        cancelled = {frame[1] for frame in frames if frame[0] == wire.CANCEL}
        for call_id in cancelled:
            self._cancel(call_id)
        calls = [f for f in frames if f[0] == wire.CALL and f[1] not in cancelled]
        if urgent := self._house.methods.urgent:
            calls.sort(key=lambda frame: frame[2] not in urgent)
        self._queue.extend(calls)

    def _cancel(self, call_id: int) -> None:
        self._apart.pop(call_id, None)
        if (later := self._later.get(call_id)) is not None:
            later.cancel()
        self._house.methods.tickets.drop(self, call_id)

    def _learn(self, counts: MethodCounts, duration_s: float) -> None:
        average = self._averages.get(counts, 0.0)
        self._averages[counts] = average + 0.2 * (min(duration_s, _MOST_S) - average)

    # A call.

    def _run(self, frame: wire.Fields, read_at: float) -> Reply:
        """Runs a call that may have a deadline or notes, if it still may run."""
        _, _, method, body, buffers, timeout_us, said = frame
        if self._house.is_stopping and not method.startswith(OURS):
            return wire.NOT_RUN, wire.STOPPING, []
        until = read_at + timeout_us * 1e-6 if timeout_us else None
        if until is not None and until < _monotonic():
            return wire.NOT_RUN, wire.LATE, []
        if not said:
            return self._house.methods.answer_for(Serving(until), method, body, buffers)
        found = notes.decode(said)
        if (note := found.get(notes.COMPRESSED)) is not None:
            body, buffers = compression.unpack(note, body, buffers, self._house.max_bytes)
        on_behalf_of = Serving(until, found.get(notes.TRACE, b""))
        return self._house.methods.answer_for(on_behalf_of, method, body, buffers)

    def _run_elsewhere(self, frame: wire.Fields) -> None:
        with self._lock:
            self._n_elsewhere += 1
        is_urgent = frame[2] in self._house.methods.urgent
        self._apart[frame[1]] = call = Apart(self, frame, self._read_at, is_urgent)
        self._house.pool.submit(call)

    def _answer(self, frame: wire.Fields, reply: Reply, counts: MethodCounts, began: float) -> None:
        if reply[0] == LATER:
            self._answer_later(frame, reply[1], counts, began)
            return
        _, call_id, _, body_in, buffers_in, _, said_in = frame
        if reply[0] == wire.STREAM:  # which needs a connection of its own
            ticket = self._house.methods.tickets.put(reply[1], self, counts, call_id)
            reply = wire.STREAM, ticket, []
        kind, body, views = fit(reply, self._takes_bytes)
        said = b""
        if (
            said_in
            and compression.is_worthwhile(body, views)
            and notes.COMPRESSED in notes.decode(said_in)
        ):
            body, views, note = compression.pack(body, views)
            said = notes.encode({notes.COMPRESSED: note})
        self._answers.put_chunks(wire.encode(kind, call_id, b"", body, views, 0, said))
        if kind == wire.ERROR or kind == wire.NOT_RUN:
            counts.errors += 1
        n_in, n_out = wire.size(body_in, buffers_in), wire.size(body, views)
        counts.finish(_monotonic() - began, n_in, n_out)

    def _answer_later(
        self, frame: wire.Fields, later: Later, counts: MethodCounts, began: float
    ) -> None:
        call_id = frame[1]
        self._later[call_id] = later
        with self._lock:
            self._n_elsewhere += 1

        def answer() -> None:
            self._later.pop(call_id, None)
            self._answer(frame, encode_outcome(later), counts, began)
            self._deliver()

        self._house.owe(later, answer)

    def _deliver(self) -> None:
        """Sends the answer to a call that was not the turn's. The last of them may have to close."""
        with contextlib.suppress(OSError):  # who reads will see it, and close
            self._answers.flush()
        with self._lock:
            self._n_elsewhere -= 1
        self._close_if_done()

    # The end.

    def _end(self) -> None:
        """The client sends no more; or we have hung up, and wait for what still runs."""
        self._house.unwatch(self)
        with self._lock:
            self._has_ended = True
        if not self._house.is_stopping:
            self._cancel_later()
        self._close_if_done()

    def _give_up(self, turn: Turn) -> None:
        if self._turn is turn:
            self.close()
        else:
            self.cut()  # another thread reads: the descriptor is that one's to close

    def _close_if_done(self) -> None:
        with self._lock:
            is_done = self._has_ended and not self._n_elsewhere
        if is_done:
            self._close_quietly()

    def _close_quietly(self) -> None:
        self._cancel_later()
        self._house.methods.tickets.drop(self)
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
        if not was_closed:
            self._answers.finish(self.part)

    def _cancel_later(self) -> None:
        for later in tuple(self._later.values()):
            later.cancel()  # nobody is there to hear it
