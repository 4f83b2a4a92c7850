"""A recorder that keeps spans of a worker's calls and waits for some seconds, then hands them over.

    record(peer, seconds, rate, done) ──▶ ProcessRecorder ── time is up, or end(sessions) ──▶ done(Recorded)

    caller                                         server
    spans.call(…)    ── header RECORDED, number ──▶ recorder.answer(…)     its span has the same number

1. The caller decides whether a call is recorded. The server records the same calls if it records at all, so
   that both spans of a call are there whenever both ends record.
2. A process records a quarter of `rate` calls a second, over all its threads. It records more, up to `rate`,
   only if the recorded calls are at most 1 % of the calls that it makes. If it makes more calls, the first
   ones of each quarter of a second are recorded. During the rest of the quarter, `tracing.spans` is not the
   recorder, and calls are only counted, which costs nothing extra.
3. A recording ends by itself: a thread of the recorder watches the time, and no message is needed.

Spans are plain tuples here. `launchpad.telemetry.trace` turns them into JSON, in the process that asked for
the recording.
"""

from __future__ import annotations

import itertools
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import field
from functools import partial
from typing import Any

from launchpad.courier import fork
from launchpad.courier.caller import Peer, own_peer
from launchpad.courier.interruptions import Event, RLock
from launchpad.courier.light_dataclass import dataclass
from launchpad.courier.own_threads import OwnThread
from launchpad.courier.promise import Promise
from launchpad.courier.protocol import framing, handshake
from launchpad.courier.telemetry import registry, tracing

MAX_S = 60.0
"""The longest time of a recording, in seconds."""

MOST_SPANS = 200_000
"""The most spans that a process keeps, over all its threads. Further ones are only counted."""

# Ticks are rare because recorded calls are slower, and after slower calls both ends stop spinning for the
# next ones for a while.
_TICK_S = 0.25
_FINISH_S = 5.0
_SHARE = 0.01  # recording a call takes about twice as long as making it
_SHORTEST_NS = 20_000  # shorter waits are dropped: a loop that polls makes any number of them

CALL, SUBMIT, FUTURE, ANSWER, COROUTINE, WAIT = range(6)
KINDS = {
    CALL: "a call, in the thread that waits for its answer",
    SUBMIT: "a call that is not waited for, until it is on its way",
    FUTURE: "the same, until its outcome is here; beside what the thread does",
    ANSWER: "a method, in the thread that runs it",
    COROUTINE: "a method that is a coroutine, until its outcome is there; beside what the thread does",
    WAIT: "for others: a barrier, a collective operation, the stop",
}

UNFINISHED = "(not finished)"

Span = tuple[int, str, str, int, int, int, str]
"""A span: its kind; the server; the method, or the name of the wait; when it began and ended, in ns of the
host's monotonic clock; the call's number, 0 for a wait; the type of its exception, UNFINISHED, or ""."""

_now = time.monotonic_ns


def clock_id() -> bytes:
    """Return an id that is the same for processes with one monotonic clock; zeros if that is unknown.

    They are on one machine, and in one time namespace.
    """
    boot_id = handshake.boot_id()
    try:
        namespace = os.stat("/proc/self/ns/time").st_ino
    except OSError:
        # The kernel has no time namespaces, or this is no Linux.
        return boot_id
    return boot_id + namespace.to_bytes(8, "big") if any(boot_id) else boot_id


@dataclass(frozen=True)
class RecordedThread:
    """The spans of one thread. `id` is its number in the kernel."""

    id: int
    name: str
    spans: Sequence[Span]


@dataclass(frozen=True)
class Recorded:
    """The recording of one worker, or of a process.

    Attributes:
        clock_id: The id of its monotonic clock, see `clock_id`.
        clock_ns, wall_ns: One moment, by the monotonic clock and in ns since 1970.
        began_ns, ended_ns: Start and end of the recording, by the monotonic clock.
        calls: Number of calls that the worker made in this time, recorded or not, without courier's own.
        dropped: Number of spans for which there was no room.
    """

    host: str
    pid: int
    clock_id: bytes
    clock_ns: int
    wall_ns: int
    began_ns: int
    ended_ns: int
    calls: int
    dropped: int
    threads: Sequence[RecordedThread]


@dataclass(frozen=True, eq=False)
class RecordingSession:
    """A recording in progress, of one worker or process. Its times are by the monotonic clock."""

    peer: Peer
    rate: int
    done: Callable[[Recorded], object]
    calls_before: int
    began_ns: int
    until_ns: int
    is_over: threading.Event = field(default_factory=threading.Event)


def record(
    peer: Peer, seconds: float, rate: int, done: Callable[[Recorded], object]
) -> RecordingSession:
    """Start recording what a worker, or this process, does.

    Args:
        peer: The worker or process to record.
        seconds: How long to record, at most `MAX_S`.
        rate: The most calls to record per second. A quarter of this number is always recorded, if that many
            calls are made.
        done: Called once with the recording, in the recorder's thread or in the thread that calls `end`.

    Raises:
        RuntimeError: No new thread can be started.
    """
    began = _now()
    until = began + int(min(seconds, MAX_S) * 1e9)
    session = RecordingSession(peer, rate, done, registry.calls_made(peer), began, until)
    with _lock:
        recorder = _recorder()
        if recorder is None:
            recorder = ProcessRecorder()
            OwnThread(target=recorder.run, name="courier-recorder").start()
        recorder.sessions.append(session)
        recorder.wake.set()
        tracing.recorder = recorder
    return session


def end(sessions: Collection[RecordingSession]) -> None:
    """End these recordings, unless they have ended. Return once their `done` has been called."""
    with _lock:
        recorder = _recorder()
        ending = []
        if recorder is not None:
            ending = [session for session in recorder.sessions if session in sessions]
            recorder.sessions = [
                session for session in recorder.sessions if session not in sessions
            ]
            recorder.wake.set()
    for session in ending:
        if recorder is not None:
            recorder.finish(session)
    for session in sessions:
        session.is_over.wait(_FINISH_S)


class _Track:
    """The spans of one thread. `open` has the spans that have not ended, without their end."""

    def __init__(self, thread_id: int) -> None:
        self.thread_id = thread_id
        self.name = threading.current_thread().name
        self.peer = own_peer()
        self.spans: list[Span] = []
        self.open: dict[tuple[int, int], tuple[str, str, int]] = {}


class ProcessRecorder:
    """The recorder of this process. Thread-safe: each thread adds spans to its own track."""

    def __init__(self) -> None:
        self.sessions: list[RecordingSession] = []
        self.wake = Event()
        self._tracks: dict[int, _Track] = {}
        # The first number is random, so that no two processes use the same ones. It is below 2**62, for
        # readers of JSON.
        self._next_number = itertools.count(int.from_bytes(os.urandom(8)) >> 2).__next__
        self._budget = 0.0
        self._dropped = 0

    # Methods for calls that this process makes.

    def call(
        self, channel: Any, method: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call `channel.call`, and record it."""
        number, track, view = self._begin(channel)
        place = (CALL, number)
        began = _now()
        why = ""
        track.open[place] = channel.peer.label, method.decode(), began
        try:
            inner = tracing.opentelemetry
            if inner is not None:
                return inner.call(view, method, args, kwargs)
            return view.call(method, *args, **kwargs)
        except BaseException as error:
            why = type(error).__name__
            raise
        finally:
            self._end(track, place, channel.peer.label, why)

    def submit(
        self, channel: Any, method: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Future[Any]:
        """Call `channel.submit`, and record it until its outcome arrives."""
        number, track, view = self._begin(channel)
        about = channel.peer.label, method.decode(), _now()
        track.open[SUBMIT, number] = about
        track.open[FUTURE, number] = about
        future: Future[Any] | None = None
        try:
            inner = tracing.opentelemetry
            if inner is not None:
                future = inner.submit(view, method, args, kwargs)
            else:
                future = view.submit(method, *args, **kwargs)
        finally:
            self._end(track, (SUBMIT, number))
            if future is None:
                track.open.pop((FUTURE, number), None)

        def end_future(outcome: Future[Any]) -> None:
            why = ""
            if outcome.cancelled():
                why = "CancelledError"
            else:
                error = outcome.exception()
                if error is not None:
                    why = type(error).__name__
            self._end(track, (FUTURE, number), channel.peer.label, why)

        future.add_done_callback(end_future)
        return future

    def _begin(self, channel: Any) -> tuple[int, _Track, Any]:
        """Return the number of a new call, the track of this thread, and the channel for the call.

        These are a plain tuple, because each recorded call makes one.
        """
        self._budget -= 1
        if self._budget < 1:
            tracing.spans = tracing.opentelemetry
        number = self._next_number()
        return number, self._track(), channel.with_number(number.to_bytes(8, "big"))

    # Methods for calls that this process answers, and for waits.

    def answer(
        self,
        answer: Callable[..., tuple[int, Any, list[memoryview]]],
        call: tuple[str, bytes],
        method: bytes,
        body: Any,
        buffers: Sequence[Any],
    ) -> tuple[int, Any, list[memoryview]]:
        """Call `answer(method, body, buffers)`, and record it. `call` is the server and the call's number."""
        track = self._track()
        number = int.from_bytes(call[1], "big")
        about = call[0], method.decode(errors="replace"), _now()
        track.open[ANSWER, number] = about
        reply = None
        try:
            reply = answer(method, body, buffers)
            return reply
        finally:
            kind, outcome = reply[:2] if reply is not None else (framing.ERROR, None)
            if isinstance(outcome, Promise):
                track.open[COROUTINE, number] = about
                outcome.then(partial(self._end_promise, track, number))
            self._end(track, (ANSWER, number), why="raised" if kind == framing.ERROR else "")

    def end_wait(self, wait: tracing.Wait) -> None:
        """Record a wait of the calling thread that is over now."""
        end_ns = _now()
        if end_ns - wait.began_ns > _SHORTEST_NS:
            self._add(self._track(), (WAIT, "", wait.name, wait.began_ns, end_ns, 0, ""))

    def _end_promise(self, track: _Track, number: int, promise: Promise) -> None:
        why = ""
        try:
            promise.result()
        except BaseException as error:
            why = type(error).__name__
        self._end(track, (COROUTINE, number), why=why)

    def _end(self, track: _Track, place: tuple[int, int], server: str = "", why: str = "") -> None:
        """Record the end of an open span.

        Args:
            server: The server's own name, if the call has learned it.
        """
        label, method, began = track.open.pop(place)
        self._add(track, (place[0], server or label, method, began, _now(), place[1], why))

    def _add(self, track: _Track, span: Span) -> None:
        if len(track.spans) * max(1, len(self._tracks)) < MOST_SPANS:
            track.spans.append(span)
        else:
            self._dropped += 1

    def _track(self) -> _Track:
        thread_id = threading.get_native_id()
        track = self._tracks.get(thread_id)
        if track is None:
            track = self._tracks[thread_id] = _Track(thread_id)
        return track

    # The recorder's own thread.

    def run(self) -> None:
        """Renew the budget at each tick, and finish recordings, until the last one has ended."""
        before = _now() - int(_TICK_S * 1e9)
        calls_before = sys.maxsize
        while True:
            with _lock:
                now = _now()
                due_sessions = [session for session in self.sessions if session.until_ns <= now]
                self.sessions = [session for session in self.sessions if session.until_ns > now]
                rate = sum(session.rate for session in self.sessions)
                most = rate * (now - before) / 1e9
                calls = sum(map(registry.calls_made, {session.peer for session in self.sessions}))
                more = max(most / 4, min(most, _SHARE * (calls - calls_before)))
                self._budget = min(self._budget + more, max(1.0, rate / 4))
                before = now
                calls_before = calls
                if not self.sessions:
                    tracing.spans = tracing.opentelemetry
                    tracing.recorder = None
                elif self._budget >= 1:
                    tracing.spans = self
            for session in due_sessions:
                self.finish(session)
            if tracing.recorder is not self:
                return
            until_ns = min((session.until_ns for session in self.sessions), default=0)
            remaining_s = (until_ns - _now()) / 1e9
            self.wake.wait(max(0.0, min(_TICK_S, remaining_s)))
            self.wake.clear()

    def finish(self, session: RecordingSession) -> None:
        """Pass the recording to the session's `done`."""
        try:
            session.done(self._recorded(session))
        finally:
            session.is_over.set()

    def _recorded(self, session: RecordingSession) -> Recorded:
        """Collect the spans of a session that ends now."""
        end_ns = _now()
        threads: dict[int, tuple[str, list[Span]]] = {}
        for track in list(self._tracks.values()):
            if track.peer == session.peer:
                spans = [span for span in list(track.spans) if span[4] > session.began_ns]
                spans += [
                    (kind, server, method, began, end_ns, number, UNFINISHED)
                    for (kind, number), (server, method, began) in list(track.open.items())
                ]
                threads[track.thread_id] = track.name, spans
        for wait in list(tracing.open_waits.values()):
            if wait.peer == session.peer:
                thread_id, name = wait.thread
                span = WAIT, "", wait.name, wait.began_ns, end_ns, 0, UNFINISHED
                threads.setdefault(thread_id, (name, []))[1].append(span)
        return Recorded(
            host=socket.gethostname(),
            pid=os.getpid(),
            clock_id=clock_id(),
            clock_ns=_now(),
            wall_ns=time.time_ns(),
            began_ns=session.began_ns,
            ended_ns=end_ns,
            calls=registry.calls_made(session.peer) - session.calls_before,
            dropped=self._dropped,
            threads=tuple(
                RecordedThread(thread_id, name, tuple(_clipped(spans, session.began_ns)))
                for thread_id, (name, spans) in threads.items()
                if spans
            ),
        )


def _clipped(spans: Sequence[Span], began_ns: int) -> Iterator[Span]:
    """Clip spans that began before the recording to its start."""
    for kind, server, method, began, end_ns, number, why in spans:
        yield kind, server, method, max(began, began_ns), end_ns, number, why


# Reentrant, because garbage collection may run while a thread holds it, and end a call.
_lock = RLock()


def _recorder() -> ProcessRecorder | None:
    recorder = tracing.recorder
    return recorder if isinstance(recorder, ProcessRecorder) else None


def _renew() -> None:
    global _lock
    _lock = RLock()


fork.reset_in_child(_renew)
