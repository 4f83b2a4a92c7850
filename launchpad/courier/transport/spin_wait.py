"""Spin waits: poll briefly for a reply that is likely to come at once, before blocking on it.

Waking a sleeping thread from another processor takes longer than a small call does: 20 to 60 µs on a virtual
machine. So if the last answer came at once, a thread polls for the next one for a moment before it sleeps.
Between two polls it offers its processor to other processes, because one of them may be the server.

The thread holds the GIL while it spins, so that other threads see a quick call as a short computation. If
each call released the GIL, threads that call at the same time would mostly wake each other for nothing. After
128 answers, which take about a millisecond, the thread releases the GIL during one spin, so that another
thread that waits for the GIL gets it. If the thread slept instead, one call in a hundred would be slow. A
waiter with a window longer than `WINDOW_S` always releases the GIL, because another thread of its process may
be the one that answers.

Spinning stops where it doesn't help. After a spin without an answer, the thread sleeps for the next answer
instead of spinning. If the next spin fails, too, it sleeps for 3 answers, then for 7, … A thread that keeps
others from computing, or shares its processor with a process that computes, sleeps for a thousand answers,
then for two thousand, …

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

WINDOW_S = 50e-6  # the time to spin
_LARGE = 128 << 10  # bytes; a caller with a buffer this large doesn't wait for a small answer
_MOST_SLEEPS = 63  # the most sleeps in a row, after spins without an answer
_STREAK = 32  # answers in a row, after which the waiter checks whether it is in the way of others
_STREAKS = 4  # streaks after which the waiter releases the GIL once
# If other threads computed for this share of a streak's time, spinning has kept them from computing more.
_SHARE = 0.35
# The number of answers for which a waiter sleeps after it was in the way: the first time, and at most.
_BACKOFF = 1024
_MAX_BACKOFF = 65536
_TOLERATED_S = 20e-6  # the accepted loss for each answer: sleeping would lose about as much
_MAX_WASTED_S = 8e-3  # the accepted loss beyond that, in total

_monotonic = time.monotonic
_process_time = time.process_time
_thread_time = time.thread_time


@functools.cache
def find_library(*, keeps_interpreter: bool) -> Any:
    """Return the system's library, whose functions hold or release the GIL. None if a function is missing."""
    try:
        # Imported late, because this takes a while, and only a process with connections needs it.
        import ctypes

        library = (ctypes.PyDLL if keeps_interpreter else ctypes.CDLL)(None)
        has_all = all([library.send, library.recv, library.sched_yield, DONTWAIT])
        return library if has_all else None
    except (AttributeError, ImportError, OSError, TypeError):
        return None


def _wait_with(library: Any) -> tuple[Any, Any]:
    return getattr(library, "sched_yield", None), getattr(library, "recv", None)


class SpinWaiter:
    """A socket whose receives spin before they sleep. Only one thread at a time may use or close it.

    Example:
        waiter = SpinWaiter(sock)
        waiter.send(request, NO_SIGNAL)
        n = waiter.receive(buffer)      # as sock.recv_into(buffer), often sooner

    Args:
        sock: A blocking socket. Its timeouts cover the time that the thread sleeps, not the spin.
        window_s: Seconds to spin before sleeping.
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
        # If `sock` is a wrapper, bytes on its raw socket may only be peeked at, not taken.
        self._is_plain = type(sock) is socket.socket
        self._window_s = window_s
        library = find_library(keeps_interpreter=window_s <= WINDOW_S)
        self._system_send: Any = getattr(library, "send", None)
        # The functions that a spin calls in turn; the second pair releases the GIL.
        self._wait = _wait_with(library)
        self._wait_without = _wait_with(find_library(keeps_interpreter=False))
        self._lets_go = False
        # How many of the next receives sleep without spinning.
        self._sleeps = 0 if library is not None else sys.maxsize
        self._last_sleeps = 0
        self._buffer: memoryview | None = None
        self._place: Any = None  # the same buffer, as an argument of the system's function
        self._streak = Streak(window_s)

    def send(self, data: bytes, flags: int) -> int:
        """Send as `sock.send` does."""
        if self._sleeps or not self._is_plain:
            return self._sock.send(data, flags)
        n: int = self._system_send(self._raw.fileno(), data, len(data), SEND_NOW)
        return n if n >= 0 else self._sock.send(data, flags)

    def receive(self, buffer: memoryview) -> int:
        """Receive as `sock.recv_into` does."""
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
        fileno = self._raw.fileno
        place = self._place
        n_bytes = len(buffer)
        flags = DONTWAIT
        if not self._is_plain:
            if has_pending(self._sock):
                return self._sock.recv_into(buffer)
            n_bytes = 1
            flags = PEEK_NOW
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
        if now > until:
            # The answer may have come long before, while another process had the processor.
            streak.wasted_s += now - until
        if streak.n_answers >= _STREAK:
            self._sleeps = streak.end()
            self._lets_go = streak.number % _STREAKS == 0
        return n if self._is_plain else self._sock.recv_into(buffer)


class Streak:
    """Consecutive answers for which a waiter spun. A streak checks whether spinning kept others waiting.

    Attributes:
        n_answers: Number of answers in this streak so far.
        number: Number of streaks that have ended.
        wasted_s: Seconds recently lost because answers may have come before the waiter saw them.
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
        """Note the times and the thread. The waiter calls this when the first answer has come."""
        self._thread = get_ident()
        self._began = _monotonic()
        self._other_threads_s = _process_time() - _thread_time()

    def end(self) -> int:
        """Return how many receives should now sleep without spinning; 0 if spinning was not in the way."""
        took_s = _monotonic() - self._began
        other_threads_s = _process_time() - _thread_time() - self._other_threads_s
        # Don't judge a streak that took longer than its spins could: other threads interrupted it.
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
