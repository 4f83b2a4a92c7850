"""Watermarks: messages from the supervisor to a worker, as named numbers that only grow.

    ended/actor-3            the last attempt of that worker that has ended, for a worker that watches ends
    succeeded/actor-3        the attempt of that worker that succeeded
    over/actor-3             the last attempt of that worker, whether it succeeded or failed
    restarted/actor-3        an attempt that was over, but has a successor: the worker restarts with others
    barrier/epoch            the number of the wait with which this worker passed that barrier
    left/epoch               the number of the wait that this worker gave up at that barrier
    absent/epoch/actor-3     the number of the wait at which that worker was absent
    broken/epoch/actor-3     the number of the wait that can't succeed, since that worker has ended for good
    counts                   the number of the last request for the worker's counts of calls
    recording                the last request to record the worker's calls, with time and rate: see
                             `launch/supervision/recordings.py`

Watermarks can be sent again, be merged and arrive late, because only the larger number counts. So a pod may
read all of them from one file, however many it missed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from launchpad.courier import fork
from launchpad.courier.deadlines import deadline_after
from launchpad.courier.interruptions import Condition

ENDED = "ended/"
SUCCEEDED = "succeeded/"
OVER = "over/"
RESTARTED = "restarted/"
BARRIER = "barrier/"
LEFT = "left/"
ABSENT = "absent/"
BROKEN = "broken/"
COUNTS = "counts"
RECORDING = "recording"

Values = Mapping[str, int]

_MS_BITS = 20
_RATE_BITS = 12


def pack_recording(number: int, seconds: float, rate: int) -> int:
    """Return the value of RECORDING, which grows with the number of the request."""
    ms = int(seconds * 1000)
    rate = min(rate, (1 << _RATE_BITS) - 1)
    return (number << _RATE_BITS | rate) << _MS_BITS | min(ms, (1 << _MS_BITS) - 1)


class RecordingRequest(NamedTuple):
    """A request to record calls."""

    number: int
    seconds: float
    rate: int  # the most calls to record per second


def parse_recording(value: int) -> RecordingRequest:
    """Return the request that `pack_recording` packed into this value."""
    ms = value & ((1 << _MS_BITS) - 1)
    rate = value >> _MS_BITS & ((1 << _RATE_BITS) - 1)
    return RecordingRequest(value >> (_MS_BITS + _RATE_BITS), ms / 1000, rate)


class Watermarks:
    """The watermarks of one worker. Methods may be called from any thread."""

    def __init__(self) -> None:
        self._values: dict[str, int] = {}
        # Held to change the numbers, and to look at them before a wait, so that no growth is missed.
        self._changed = fork.free_in_child(Condition())
        self._callbacks: list[tuple[str, Callable[[str, int], None]]] = []

    def get(self, name: str) -> int:
        """Return the number of this name; 0 if it has not arrived yet."""
        return self._values.get(name, 0)

    def names(self, prefix: str, at_least: int) -> list[str]:
        """Return the names with this prefix whose number is `at_least` or more, sorted and without prefix."""
        numbers = list(self._values.items())
        return sorted(
            name.removeprefix(prefix)
            for name, number in numbers
            if name.startswith(prefix) and number >= at_least
        )

    def forget(self, names: Collection[str], prefixes: Collection[str]) -> None:
        """Drop numbers that will not be read again, to free their memory."""
        with self._changed:
            for name in [n for n in self._values if n in names or n.startswith(tuple(prefixes))]:
                del self._values[name]

    def on_growth(self, prefix: str, callback: Callable[[str, int], None]) -> None:
        """Call `callback` for each number that grows, with its name without the prefix, and the number.

        The callback runs in a thread of launchpad.
        """
        self._callbacks.append((prefix, callback))

    def grow(self, values: Values) -> None:
        """Take over the numbers that are larger than before."""
        with self._changed:
            grown = {n: v for n, v in values.items() if v > self._values.get(n, 0)}
            self._values.update(grown)
            self._changed.notify_all()
        for name, value in grown.items():
            for prefix, callback in list(self._callbacks):
                if name.startswith(prefix):
                    callback(name.removeprefix(prefix), value)

    def wait_for(self, condition: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until the condition holds. Return False if the time is up first.

        The condition is checked after each growth and each `wake`.
        """
        deadline = deadline_after(timeout_s)
        with self._changed:
            while not condition():
                left_s = None if deadline is None else deadline - time.monotonic()
                if left_s is not None and left_s <= 0:
                    return False
                self._changed.wait(left_s)
        return True

    def wake(self) -> None:
        """Make waiting threads check their conditions."""
        with self._changed:
            self._changed.notify_all()
