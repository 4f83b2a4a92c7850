"""Leases: a host that can't reach the launcher ends its workers before the launcher starts them elsewhere.

    launcher  Renewals ── renew ──▶  HostLease  host
                       ◀─ answer ──

A host whose cable was pulled goes on computing, and the launcher can't tell it from a dead one. If the
launcher started the next attempt of a worker at once, two attempts would run and write beside each other. So
each host has a lease. When the lease ends, the host kills its workers. The launcher reports an attempt on a
host that doesn't answer as lost only when the host's lease must have ended.

No clocks are compared. The launcher sends a renewal only after it has the answer to the one before. So when a
renewal arrives, the host knows that the launcher had its last answer, and its lease runs for `LEASE_S` from
the time when it sent that answer. The launcher counts from the time when the answer arrived, which is later.

A host that was frozen, not cut off, may run for a moment after it was thawed, until it looks at its lease. It
can't save in that moment, because a state folder refuses all but the last attempt: see `state/fence.py`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from launchpad.courier.own_threads import OwnThread

_log = logging.getLogger("launchpad.hosts")

LEASE_S = 10.0
"""How long a host's workers may run after the last answer of the host that has reached the launcher."""

ENDED_AFTER_S = LEASE_S + 2.0
"""Seconds after that answer's arrival when the launcher takes the workers for ended. A host needs up to
`_LOOK_S` to notice the end of its lease, and then a moment to kill its workers."""

ENDED = f"it had no answer from the launcher for {LEASE_S:g} s, and has ended its workers"
"""What a host says whose lease has ended."""

RENEW_S = 1.0
_LOOK_S = 0.25

# CLOCK_BOOTTIME goes on while the machine is suspended, in contrast to CLOCK_MONOTONIC.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Return the time in seconds on a clock that goes on while this machine is suspended."""
    return time.clock_gettime(_CLOCK)


class HostLease:
    """The lease of a host, at the host.

    Args:
        on_end: Called once when the lease ends, in a thread of its own.
        clock: Returns the time in seconds.
    """

    def __init__(self, on_end: Callable[[], object], clock: Callable[[], float] = now) -> None:
        self._on_end = on_end
        self._clock = clock
        self._answered_at = clock()
        self._ends_at = self._answered_at + LEASE_S
        self._is_released = threading.Event()

    def begin(self) -> None:
        """Begin the lease. The launcher must not have renewed it yet."""
        self._answered_at = self._clock()
        self._ends_at = self._answered_at + LEASE_S
        OwnThread(target=self._watch, name="launchpad-lease").start()

    def renew(self) -> None:
        """Take a renewal. The caller answers it at once."""
        self._ends_at = self._answered_at + LEASE_S
        self._answered_at = self._clock()

    def has_ended(self) -> bool:
        return self._clock() >= self._ends_at

    def release(self) -> None:
        """Watch the lease no more, because the host has no workers any more."""
        self._is_released.set()

    def _watch(self) -> None:
        while not self._is_released.wait(_LOOK_S):
            if self.has_ended():
                _log.warning("the launcher has not answered for %g s: ending its workers", LEASE_S)
                self._on_end()
                return


@dataclass(eq=False)
class _Renewal:
    """A host's renewals, at the launcher. `answered_at` is when its last answer arrived."""

    renew: Callable[[], Future[Any]]
    on_silent: Callable[[], object]
    clock: Callable[[], float]
    answered_at: float
    is_waiting: bool = False
    is_stopped: bool = False

    def on_answer(self, future: Future[Any]) -> None:
        if future.exception() is None:
            self.answered_at = self.clock()
            self.is_waiting = False


class Renewals:
    """The launcher's side of all leases of a launch. One thread renews them. Call it from any thread."""

    def __init__(self, clock: Callable[[], float] = now) -> None:
        self._clock = clock
        self._renewals: dict[object, _Renewal] = {}
        self._is_over = threading.Event()
        # Held while the thread is started, because hosts connect in several threads.
        self._lock = threading.Lock()
        self._thread: OwnThread | None = None

    def begin(
        self,
        host: object,
        renew: Callable[[], Future[Any]],
        on_silent: Callable[[], object],
    ) -> None:
        """Renew a host's lease from now on. Call this once for each host, as soon as it has connected.

        Args:
            renew: Calls the host's `renew` method, and doesn't wait.
            on_silent: Called if the host has not answered for `ENDED_AFTER_S`, and nothing else has said that
                it is gone: its process may be stuck.
        """
        self._renewals[host] = _Renewal(renew, on_silent, self._clock, self._clock())
        with self._lock:
            if self._thread is None and not self._is_over.is_set():
                self._thread = OwnThread(target=self._work, name="launchpad-leases")
                self._thread.start()

    def stop(self, host: object) -> float:
        """Renew a host's lease no longer, because it doesn't answer.

        Returns:
            The seconds until the host must have ended its workers; 0 if it has no lease, or none any more.
        """
        renewal = self._renewals.get(host)
        if renewal is None:
            return 0.0
        renewal.is_stopped = True
        return max(0.0, renewal.answered_at + ENDED_AFTER_S - self._clock())

    def close(self) -> None:
        """Renew no more leases."""
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while not self._is_over.wait(RENEW_S):
            self._renew_all()

    def _renew_all(self) -> None:
        for host, renewal in list(self._renewals.items()):
            is_over = self._clock() >= renewal.answered_at + ENDED_AFTER_S
            if renewal.is_stopped:
                # Until then `stop` must say how long the lease still runs.
                if is_over:
                    del self._renewals[host]
                continue
            # The next renewal says that the answer to the last one has arrived, so wait for that.
            if not renewal.is_waiting:
                renewal.is_waiting = True
                try:
                    renewal.renew().add_done_callback(renewal.on_answer)
                # The cluster is gone. A host that is not renewed ends its workers by itself.
                except Exception as error:
                    _log.debug("a lease could not be renewed: %s", error)
            elif is_over:
                renewal.is_stopped = True
                renewal.on_silent()
