"""Waits awake for what is likely to come at once.

A thread that sleeps has to be woken, and from one processor to another that takes longer than a small
call does: 20 to 60 µs on a virtual machine. So a thread that was answered at once the last time polls for
the next answer for a moment before it sleeps. Between two polls it offers its processor to other
processes: one of them may be the one which is to answer.

It keeps the interpreter meanwhile, so that to other threads a quick call is like a short computation.
If each call let go of it, threads that call at the same time would mostly wake each other in vain.
After 128 answers, about a millisecond, it lets go of it while it polls for the next one: a thread that waits
for the interpreter has it then. To sleep for that answer would make one call in a hundred a slow one.
One that spins for longer always does: it may be another thread of its process that is to answer.

It does not spin for long when that does not help: after a spin in vain it sleeps the next time, then the
next 3, 7, … times. A thread that keeps others from computing, or shares its processor with
a process that computes, sleeps the next thousand times, then the next two thousand, …

Source: adaptive mutexes; the polling of idle virtual processors (Linux, guest-halt-polling).
"""

from __future__ import annotations

import functools
import socket
import sys
import time
from threading import get_ident
from typing import Any

from launchpad.courier.transport.stream_socket import (
    DONTWAIT,
    PEEK_NOW,
    SEND_NOW,
    Socket,
    has_pending,
    raw_of,
)

WINDOW_S = 50e-6  # to spin
_LARGE = 128 << 10  # a caller that takes so much at once does not wait for a small answer
_MOST_SLEEPS = 63  # in a row, after spinning in vain
_STREAK = 32  # answers in a row; then it checks whether it is in the way of others
_STREAKS = 4  # then it lets go of the interpreter once
_SHARE = 0.35  # of that time: other threads that computed so much would have computed more
_BACKOFF, _MAX_BACKOFF = 1024, 65536  # sleeps in a row, if so
_TOLERATED_S = 20e-6  # lost by an answer: sleeping would lose about as much
_MAX_WASTED_S = 8e-3  # beyond that

_monotonic, _process_time, _thread_time = time.monotonic, time.process_time, time.thread_time


@functools.cache
def find_library(*, keeps_interpreter: bool) -> Any:
    """The system's library, whose functions keep the interpreter or not; None where one is missing."""
    try:
        import ctypes  # which takes a while, and only a process with connections needs it

        library = (ctypes.PyDLL if keeps_interpreter else ctypes.CDLL)(None)
        has_all = all([library.send, library.recv, library.sched_yield, DONTWAIT])
        return library if has_all else None
    except (AttributeError, ImportError, OSError, TypeError):
        return None


def _wait_with(library: Any) -> tuple[Any, Any]:
    return getattr(library, "sched_yield", None), getattr(library, "recv", None)


class SpinWaiter:
    """Sends and receives on a socket, for one thread at a time, which alone may close it.

    Example:
        waiter = SpinWaiter(sock)
        waiter.send(request, NO_SIGNAL)
        n = waiter.receive(buffer)      # as sock.recv_into(buffer), often sooner

    Args:
        sock: one that blocks. Its limits hold for the time that the thread sleeps.
        window_s: how long to spin.
    """

    __slots__ = (
        "_buffer",
        "_is_plain",
        "_last_sleeps",
        "_lets_go",
        "_place",
        "_raw",
        "_sleeps",
        "_sock",
        "_streak",
        "_system_send",
        "_wait",
        "_wait_without",
        "_window_s",
    )

    def __init__(self, sock: Socket, window_s: float = WINDOW_S) -> None:
        self._sock = sock
        self._raw = raw_of(sock)
        self._is_plain = type(sock) is socket.socket  # else bytes are to be looked at, not taken
        self._window_s = window_s
        library = find_library(keeps_interpreter=window_s <= WINDOW_S)
        self._system_send: Any = getattr(library, "send", None)
        # What it calls by turns; and without the interpreter.
        self._wait = _wait_with(library)
        self._wait_without = _wait_with(find_library(keeps_interpreter=False))
        self._lets_go = False
        self._sleeps = 0 if library is not None else sys.maxsize  # to come, in a row
        self._last_sleeps = 0
        self._buffer: memoryview | None = None
        self._place: Any = None  # the same, as the system takes it
        self._streak = Streak(window_s)

    def send(self, data: bytes, flags: int) -> int:
        """As `sock.send`."""
        if self._sleeps or not self._is_plain:
            return self._sock.send(data, flags)
        n: int = self._system_send(self._raw.fileno(), data, len(data), SEND_NOW)
        return n if n >= 0 else self._sock.send(data, flags)

    def receive(self, buffer: memoryview) -> int:
        """As `sock.recv_into`."""
        if self._sleeps:
            self._sleeps -= 1
            return self._sock.recv_into(buffer)
        if buffer is not self._buffer:
            if len(buffer) > _LARGE:
                return self._sock.recv_into(buffer)
            import ctypes

            self._place = ctypes.byref(ctypes.c_char.from_buffer(buffer))
            self._buffer = buffer
        offer, recv = self._wait
        if self._lets_go:
            self._lets_go = False
            offer, recv = self._wait_without
        fileno, place, n_bytes, flags = self._raw.fileno, self._place, len(buffer), DONTWAIT
        if not self._is_plain:
            if has_pending(self._sock):
                return self._sock.recv_into(buffer)
            n_bytes, flags = 1, PEEK_NOW
        until = _monotonic() + self._window_s
        while True:
            offer()
            now = _monotonic()
            n: int = recv(fileno(), place, n_bytes, flags)
            if n >= 0:
                break
            if now > until:
                if self._streak.n_answers:
                    self._last_sleeps = 0
                    self._streak.n_answers = 0
                self._last_sleeps = min(2 * self._last_sleeps + 1, _MOST_SLEEPS)
                self._sleeps = self._last_sleeps
                return self._sock.recv_into(buffer)
        streak = self._streak
        if not streak.n_answers:
            streak.begin()
        streak.n_answers += 1
        if now > until:  # the answer may have been there long ago: another process was running
            streak.wasted_s += now - until
        if streak.n_answers >= _STREAK:
            self._sleeps = streak.end()
            self._lets_go = streak.number % _STREAKS == 0
        return n if self._is_plain else self._sock.recv_into(buffer)


class Streak:
    """Answers in a row for which a waiter has spun, and whether that was in the way of others.

    Attributes:
        n_answers: That have come in this streak.
        number: Of streaks that have ended.
        wasted_s: By answers that may have been there before, lately.
    """

    __slots__ = (
        "_backoff",
        "_began",
        "_other_threads_s",
        "_thread",
        "_window_s",
        "n_answers",
        "number",
        "wasted_s",
    )

    def __init__(self, window_s: float) -> None:
        self.n_answers = 0
        self.number = 0
        self.wasted_s = 0.0
        self._window_s = window_s
        self._backoff = _BACKOFF
        self._thread = 0
        self._began = 0.0
        self._other_threads_s = 0.0

    def begin(self) -> None:
        """Note the times and the thread, when the first answer has come."""
        self._thread = get_ident()
        self._began = _monotonic()
        self._other_threads_s = _process_time() - _thread_time()

    def end(self) -> int:
        """Return how often to sleep now, in a row; more than 0 if spinning was in the way of others."""
        took_s = _monotonic() - self._began
        other_threads_s = _process_time() - _thread_time() - self._other_threads_s
        # What took longer was interrupted, by other threads.
        is_one_piece = took_s < _STREAK * self._window_s and self._thread == get_ident()
        sleeps = 0
        if (is_one_piece and other_threads_s > _SHARE * took_s) or self.wasted_s > _MAX_WASTED_S:
            sleeps = self._backoff
            self._backoff = min(2 * self._backoff, _MAX_BACKOFF)
            self.wasted_s = 0.0
        elif self._backoff > _BACKOFF:
            self._backoff -= self._backoff >> 8
        self.wasted_s = max(0.0, self.wasted_s - _STREAK * _TOLERATED_S)
        self.n_answers = 0
        self.number += 1
        return sleeps
