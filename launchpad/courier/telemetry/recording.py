"""Spans of the calls and waits of a worker, kept for some seconds, then given to the one who asked.

    record(peer, seconds, rate, done) ──▶ ProcessRecorder ── time is up, or end(sessions) ──▶ done(Recorded)

    caller                                         server
    spans.call(…)    ── header RECORDED, number ──▶ recorder.answer(…)     its span has the same number

1. A caller decides whether a call is recorded. Its server records it too, if it records at all: so both spans
   of a call are there, as far as both ends are.
2. A quarter of `rate` calls a second, of all threads of the process together; more, up to `rate`, only as far
   as that is 1 % of the calls that are made. Where there are more, the first ones of each quarter of a
   second are recorded. For the rest `tracing.spans` is not the recorder, and they cost nothing; only their
   number is known.
3. It ends by itself: a thread of its own watches the time, and no message is needed for it.

Here are plain tuples; `launchpad.telemetry.trace` makes JSON of them, in the process that has asked.
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
"""No recording is longer."""

MOST_SPANS = 200_000
"""Of all threads of a process: of those that come then only the number is kept."""

_TICK_S = (
    0.25  # rarely: after slower calls both ends no longer stay awake for the next ones, for a while
)
_FINISH_S = 5.0
_SHARE = 0.01  # to record a call takes about twice as long as to make it
_SHORTEST_NS = 20_000  # of a wait: a loop that polls makes any number of shorter ones

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
"""Its kind; the server; the method, or what is waited in; when it began and ended, in ns of the host's
monotonic clock; the call's number, 0 for a wait; the type of what it raised, UNFINISHED, or nothing."""

_now = time.monotonic_ns


@dataclass(frozen=True)
class RecordedThread:
    """What one thread has done; `id` is the kernel's."""

    id: int
    name: str
    spans: Sequence[Span]


@dataclass(frozen=True)
class Recorded:
    """What a worker, or a process, has recorded.

    Attributes:
        boot_id: Of its host: processes with the same one have the same clock.
        clock_ns, wall_ns: The same moment, by the monotonic clock and since 1970.
        began_ns, ended_ns: By the monotonic clock.
        calls: How many it has made meanwhile, recorded or not, without courier's own.
        dropped: How many spans there was no room for.
    """

    host: str
    pid: int
    boot_id: bytes
    clock_ns: int
    wall_ns: int
    began_ns: int
    ended_ns: int
    calls: int
    dropped: int
    threads: Sequence[RecordedThread]


@dataclass(frozen=True, eq=False)
class RecordingSession:
    """One recording of one worker, or process. Times by the monotonic clock."""

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
    """Records what this worker, or this process, does from now on.

    Args:
        rate: How many of its calls a second, at most; a quarter of that in any case.
        done: Called once, with what it has recorded, in a thread of ours or in that which calls `end`.

    Raises:
        RuntimeError: there can be no new thread.
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
    """Ends those that have not ended, and returns when they are `done`."""
    with _lock:
        recorder, ending = _recorder(), []
        if recorder is not None:
            ending = [each for each in recorder.sessions if each in sessions]
            recorder.sessions = [each for each in recorder.sessions if each not in sessions]
            recorder.wake.set()
    for session in ending:
        if recorder is not None:
            recorder.finish(session)
    for session in sessions:
        session.is_over.wait(_FINISH_S)


class _Track:
    """The spans of one thread; `open` are those that have not ended, without that."""

    def __init__(self, thread_id: int) -> None:
        self.thread_id, self.name = thread_id, threading.current_thread().name
        self.peer = own_peer()
        self.spans: list[Span] = []
        self.open: dict[tuple[int, int], tuple[str, str, int]] = {}


class ProcessRecorder:
    """Keeps the spans of this process. Safe from any thread: each adds to a track of its own."""

    def __init__(self) -> None:
        self.sessions: list[RecordingSession] = []
        self.wake = Event()
        self._tracks: dict[int, _Track] = {}
        # Random, so that no two processes have the same; below 2**62, for readers of JSON.
        self._next_number = itertools.count(int.from_bytes(os.urandom(8)) >> 2).__next__
        self._budget = 0.0
        self._dropped = 0

    # What callers do.

    def call(
        self, channel: Any, method: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """`channel.call`, recorded."""
        number, track, recorded = self._begin(channel)
        place, began, why = (CALL, number), _now(), ""
        track.open[place] = channel.peer.label, method.decode(), began
        try:
            if (inner := tracing.opentelemetry) is not None:
                return inner.call(recorded, method, args, kwargs)
            return recorded.call(method, *args, **kwargs)
        except BaseException as error:
            why = type(error).__name__
            raise
        finally:
            self._end(track, place, channel.peer.label, why)

    def submit(
        self, channel: Any, method: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Future[Any]:
        """`channel.submit`, recorded until its outcome is here."""
        number, track, recorded = self._begin(channel)
        about = channel.peer.label, method.decode(), _now()
        track.open[SUBMIT, number] = track.open[FUTURE, number] = about
        future: Future[Any] | None = None
        try:
            if (inner := tracing.opentelemetry) is not None:
                future = inner.submit(recorded, method, args, kwargs)
            else:
                future = recorded.submit(method, *args, **kwargs)
        finally:
            self._end(track, (SUBMIT, number))
            if future is None:
                track.open.pop((FUTURE, number), None)

        def end_future(done: Future[Any]) -> None:
            error = None if done.cancelled() else done.exception()
            why = "CancelledError" if done.cancelled() else type(error).__name__ if error else ""
            self._end(track, (FUTURE, number), channel.peer.label, why)

        future.add_done_callback(end_future)
        return future

    def _begin(self, channel: Any) -> tuple[int, _Track, Any]:
        self._budget -= 1
        if self._budget < 1:
            tracing.spans = tracing.opentelemetry
        number = self._next_number()
        return number, self._track(), channel.with_number(number.to_bytes(8, "big"))

    # What servers do, and others.

    def answer(
        self,
        answer: Callable[..., tuple[int, Any, list[memoryview]]],
        call: tuple[str, bytes],
        method: bytes,
        body: Any,
        buffers: Sequence[Any],
    ) -> tuple[int, Any, list[memoryview]]:
        """`answer(method, body, buffers)`, recorded; `call` is the server and the call's number."""
        track, number = self._track(), int.from_bytes(call[1], "big")
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
        """A wait of the calling thread is over."""
        if (ended := _now()) - wait.began_ns > _SHORTEST_NS:
            self._add(self._track(), (WAIT, "", wait.what, wait.began_ns, ended, 0, ""))

    def _end_promise(self, track: _Track, number: int, promise: Promise) -> None:
        why = ""
        try:
            promise.result()
        except BaseException as error:
            why = type(error).__name__
        self._end(track, (COROUTINE, number), why=why)

    def _end(self, track: _Track, place: tuple[int, int], server: str = "", why: str = "") -> None:
        """`server`: what it calls itself, where the call has found that out."""
        known, method, began = track.open.pop(place)
        self._add(track, (place[0], server or known, method, began, _now(), place[1], why))

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

    # Its own thread.

    def run(self) -> None:
        """Until the last recording has ended."""
        before, calls_before = _now() - int(_TICK_S * 1e9), sys.maxsize
        while True:
            with _lock:
                now = _now()
                due = [each for each in self.sessions if each.until_ns <= now]
                self.sessions = [each for each in self.sessions if each.until_ns > now]
                rate = sum(each.rate for each in self.sessions)
                most = rate * (now - before) / 1e9
                calls = sum(map(registry.calls_made, {each.peer for each in self.sessions}))
                more = max(most / 4, min(most, _SHARE * (calls - calls_before)))
                self._budget = min(self._budget + more, max(1.0, rate / 4))
                before, calls_before = now, calls
                if not self.sessions:
                    tracing.spans, tracing.recorder = tracing.opentelemetry, None
                elif self._budget >= 1:
                    tracing.spans = self
            for session in due:
                self.finish(session)
            if tracing.recorder is not self:
                return
            left_s = (min((each.until_ns for each in self.sessions), default=0) - _now()) / 1e9
            self.wake.wait(max(0.0, min(_TICK_S, left_s)))
            self.wake.clear()

    def finish(self, session: RecordingSession) -> None:
        """Gives what it has kept to the one who asked."""
        try:
            session.done(self._recorded(session))
        finally:
            session.is_over.set()

    def _recorded(self, session: RecordingSession) -> Recorded:
        """What it has kept for this one, as it ends."""
        ended = _now()
        threads: dict[int, tuple[str, list[Span]]] = {}
        for track in list(self._tracks.values()):
            if track.peer == session.peer:
                spans = [each for each in list(track.spans) if each[4] > session.began_ns]
                spans += [
                    (kind, server, method, began, ended, number, UNFINISHED)
                    for (kind, number), (server, method, began) in list(track.open.items())
                ]
                threads[track.thread_id] = track.name, spans
        for wait in list(tracing.open_waits.values()):
            if wait.peer == session.peer:
                thread_id, name = wait.thread
                span = WAIT, "", wait.what, wait.began_ns, ended, 0, UNFINISHED
                threads.setdefault(thread_id, (name, []))[1].append(span)
        return Recorded(
            host=socket.gethostname(),
            pid=os.getpid(),
            boot_id=handshake.boot_id(),
            clock_ns=_now(),
            wall_ns=time.time_ns(),
            began_ns=session.began_ns,
            ended_ns=ended,
            calls=registry.calls_made(session.peer) - session.calls_before,
            dropped=self._dropped,
            threads=tuple(
                RecordedThread(thread_id, name, tuple(_clipped(spans, session.began_ns)))
                for thread_id, (name, spans) in threads.items()
                if spans
            ),
        )


def _clipped(spans: Sequence[Span], began_ns: int) -> Iterator[Span]:
    """Of waits that began before the recording, only what is in it."""
    for kind, server, method, began, ended, number, why in spans:
        yield kind, server, method, max(began, began_ns), ended, number, why


_lock = RLock()  # a collection of garbage, in here, may end a call


def _recorder() -> ProcessRecorder | None:
    recorder = tracing.recorder
    return recorder if isinstance(recorder, ProcessRecorder) else None


def _renew() -> None:
    global _lock
    _lock = RLock()


fork.reset_in_child(_renew)
