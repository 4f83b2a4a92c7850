"""Watermarks: what the supervisor tells a worker, as numbers that only grow, by name.

    ended/actor-3            up to which attempt that worker has ended, for one that wants to know
    succeeded/actor-3        that attempt of it has ended well
    over/actor-3             that attempt of it has ended, well or not, and is not followed by another
    restarted/actor-3        but that one is after all, as it is started again together with others
    barrier/epoch            how often this worker has passed that barrier
    left/epoch               how often it has given up waiting there, and who was absent:
    absent/epoch/actor-3
    broken/epoch/actor-3     the barrier cannot be passed, since that worker has ended for good
    counts                   how often what it has counted of its calls was asked for
    recording                which recording of its calls was asked for, for how long, at which rate: see
                             `launch/supervision/recordings.py`

They can be sent again, merged and arrive late: the larger number is what counts. So a pod may find all of
them in one file, however many it has missed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from launchpad.courier import fork
from launchpad.courier.deadlines import deadline_after
from launchpad.courier.interruptions import Condition

ENDED, SUCCEEDED, OVER, RESTARTED = "ended/", "succeeded/", "over/", "restarted/"
BARRIER, LEFT, ABSENT, BROKEN = "barrier/", "left/", "absent/", "broken/"
COUNTS, RECORDING = "counts", "recording"

Values = Mapping[str, int]

_MS_BITS, _RATE_BITS = 20, 12


def pack_recording(number: int, seconds: float, rate: int) -> int:
    """The value of RECORDING, which grows with the number of the request."""
    ms, rate = int(seconds * 1000), min(rate, (1 << _RATE_BITS) - 1)
    return (number << _RATE_BITS | rate) << _MS_BITS | min(ms, (1 << _MS_BITS) - 1)


def parse_recording(value: int) -> tuple[int, float, int]:
    """The number of the request, how long to record in seconds, and how many calls a second."""
    ms, rate = value & ((1 << _MS_BITS) - 1), value >> _MS_BITS & ((1 << _RATE_BITS) - 1)
    return value >> (_MS_BITS + _RATE_BITS), ms / 1000, rate


class Watermarks:
    """The numbers of one worker, safe from any thread."""

    def __init__(self) -> None:
        self._values: dict[str, int] = {}
        self._changed = fork.free_in_child(Condition())
        self._callbacks: list[tuple[str, Callable[[str, int], None]]] = []

    def get(self, name: str) -> int:
        """The number of this name; 0 if there is none yet."""
        return self._values.get(name, 0)

    def names(self, prefix: str, at_least: int) -> list[str]:
        """What follows the prefix, of those that are so large; sorted."""
        found = list(self._values.items())
        return sorted(
            n.removeprefix(prefix) for n, v in found if n.startswith(prefix) and v >= at_least
        )

    def forget(self, names: Collection[str], prefixes: Collection[str]) -> None:
        """Drops numbers for which no one will ask again: so many names, so much memory."""
        with self._changed:
            for name in [n for n in self._values if n in names or n.startswith(tuple(prefixes))]:
                del self._values[name]

    def on_growth(self, prefix: str, callback: Callable[[str, int], None]) -> None:
        """Calls back with what follows the prefix, and the number, for each that grows, in our thread."""
        self._callbacks.append((prefix, callback))

    def grow(self, values: Values) -> None:
        """Takes numbers that are larger than before."""
        with self._changed:
            grown = {n: v for n, v in values.items() if v > self._values.get(n, 0)}
            self._values.update(grown)
            self._changed.notify_all()
        for name, value in grown.items():
            for prefix, callback in list(self._callbacks):
                if name.startswith(prefix):
                    callback(name.removeprefix(prefix), value)

    def wait_for(self, condition: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Until the condition holds, looked at after each growth and `wake`; False when the time is up."""
        deadline = deadline_after(timeout_s)
        with self._changed:
            while not condition():
                left_s = None if deadline is None else deadline - time.monotonic()
                if left_s is not None and left_s <= 0:
                    return False
                self._changed.wait(left_s)
        return True

    def wake(self) -> None:
        """Has those that wait look at their conditions."""
        with self._changed:
            self._changed.notify_all()
