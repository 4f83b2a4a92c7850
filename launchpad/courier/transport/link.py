"""A simulated slow link between a client and its server: bytes arrive late.

    client ── socket pair ──▶ Delay · Bandwidth ──▶ the server's connection
           ◀───────────────── Bandwidth ◀─────────

The link is for tests and experiments. Bytes that wait hold up the bytes behind them, as on a wire. Calls that
run at the server hold up nothing. Bytes on the link count as sent. So if the link ends, it may be unknown
whether their calls have run.
"""

from __future__ import annotations

import contextlib
import math
import select
import socket
import threading
import time
from collections import deque
from typing import Any

from launchpad.courier import fork
from launchpad.courier.checks import is_number
from launchpad.courier.interruptions import Lock
from launchpad.courier.light_dataclass import dataclass
from launchpad.courier.own_threads import OwnThread
from launchpad.courier.transport import stream_socket
from launchpad.courier.transport.stream_socket import Socket

_PIECE = 1 << 18  # bytes
# `poll` counts in whole milliseconds, and threads wake up late. A gap this short doesn't make the link idle.
_LATE_S = 0.002


@dataclass(frozen=True)
class Delay:
    """The time that each call takes to reach the server. The result comes back without delay.

    Example:
        slow = learner.through(lp.edges.Delay(0.05))

    Raises:
        ValueError: The time is not more than 0.
    """

    seconds: float

    def __post_init__(self) -> None:
        if not _is_positive(self.seconds):
            raise ValueError(f"Delay takes seconds, more than 0, not {self.seconds!r}")


@dataclass(frozen=True)
class Bandwidth:
    """A limit to the bytes per second in each direction. Messages pass one after the other.

    Example:
        thin = learner.through(lp.edges.Bandwidth(100e6))

    Raises:
        ValueError: The limit is not more than 0.
    """

    bytes_per_s: float

    def __post_init__(self) -> None:
        if not _is_positive(self.bytes_per_s):
            raise ValueError(
                f"Bandwidth takes bytes a second, more than 0, not {self.bytes_per_s!r}"
            )


def _is_positive(number: object) -> bool:
    return is_number(number) and 0 < number < math.inf


class Link:
    """A slow wire between one client and its server, shared by all connections of the client. Thread-safe.

    Unpickling creates a new link with the same rules.
    """

    def __init__(self, *rules: Delay | Bandwidth) -> None:
        self.rules = rules
        self._delay_s = sum(rule.seconds for rule in rules if isinstance(rule, Delay))
        rates = [rule.bytes_per_s for rule in rules if isinstance(rule, Bandwidth)]
        self._bytes_per_s = min(rates, default=math.inf)
        # Held to change `_free_at`, so that messages of several threads queue up one after the other.
        self._lock = fork.free_in_child(Lock())
        # The times at which the link can take the next message to the server, and the next one back.
        self._free_at = [0.0, 0.0]

    def arrival(self, n_bytes: int, *, is_result: bool = False) -> float:
        """Return the time, by `time.monotonic()`, at which `n_bytes` that are sent now will have arrived."""
        now = time.monotonic()
        with self._lock:
            is_idle = now - self._free_at[is_result] > _LATE_S
            begins = now if is_idle else self._free_at[is_result]
            end = begins + n_bytes / self._bytes_per_s
            self._free_at[is_result] = end
        return end if is_result else end + self._delay_s

    def __reduce__(self) -> tuple[Any, ...]:
        return Link, self.rules


def hold_up(sock: Socket, link: Link) -> socket.socket:
    """Return a socket whose bytes pass through `link` on their way to and from `sock`."""
    ours, theirs = stream_socket.blocking_pair()
    relay = _Relay(theirs, sock, link)
    for is_result in (False, True):
        OwnThread(target=relay.run, name="courier-link", args=(is_result,)).start()
    return ours


class _Relay:
    """A pair of threads, one for each direction. Both end when either connection does."""

    def __init__(self, near: socket.socket, far: Socket, link: Link) -> None:
        self._near = near
        self._far = far
        self._link = link
        self._ended = threading.Event()
        # Held to count down, so that exactly one of the two threads finds that it is the last.
        self._lock = Lock()
        self._n_running = 2
        fork.drop_in_child(self)

    def drop_inherited(self) -> None:
        """Close a forked child's copies of the parent's connections."""
        self._near.close()
        self._far.close()

    def run(self, is_result: bool) -> None:
        """Pass bytes on in one direction until a connection ends."""
        try:
            with contextlib.suppress(OSError):
                self._pass_on(is_result)
        finally:
            self._ended.set()
            for sock in (self._near, self._far):
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            # The thread that ends last closes the sockets. Otherwise the other one could still use a
            # descriptor that is closed.
            with self._lock:
                self._n_running -= 1
                is_last = not self._n_running
            if is_last:
                self._near.close()
                self._far.close()

    def _pass_on(self, is_result: bool) -> None:
        source: Socket = self._far if is_result else self._near
        target: Socket = self._near if is_result else self._far
        poller = select.poll()
        poller.register(source.fileno(), select.POLLIN)
        waiting: deque[tuple[float, bytes]] = deque()
        is_open = True
        while is_open or waiting:
            left_s = waiting[0][0] - time.monotonic() if waiting else math.inf
            # Keep reading while bytes wait. Otherwise the link would stand idle after them.
            if is_open and _is_readable(source, poller, left_s):
                data = source.recv(_PIECE)
                if data:
                    at = self._link.arrival(len(data), is_result=is_result)
                    waiting.append((at, data))
                elif is_result:
                    is_open = False
                else:
                    # The client has closed. Bytes that are still on the link are lost.
                    return
            elif self._ended.wait(max(0.0, waiting[0][0] - time.monotonic())):
                return
            if waiting and waiting[0][0] <= time.monotonic():
                target.sendall(waiting.popleft()[1], stream_socket.NO_SIGNAL)


def _is_readable(sock: Socket, poller: select.poll, timeout_s: float) -> bool:
    """Wait until `sock` has data or is at its end. Return False a little before `timeout_s` has passed."""
    if stream_socket.has_pending(sock):
        return True
    if timeout_s == math.inf:
        return bool(poller.poll())
    return bool(poller.poll(int(max(0.0, timeout_s - _LATE_S) * 1000)))
