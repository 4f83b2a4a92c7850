"""Which methods of a server are over in no time, by what they took so far."""

from __future__ import annotations

from math import inf

QUICK_S = 0.001  # a call that takes longer is better run on a thread of the server's
BLOCKED_S = 0.1  # and one that takes this long was waiting for something, not merely unlucky
FIRST_RUNS = 5  # so many have to be quick before a method is known for it
RUNS_AFTER_SLOW = 1000  # and so many after one that was not
RUNS_AFTER_BLOCKED = 1_000_000  # `queue.get()` is quick until the queue is empty
_MAX_METHODS = 1000  # a fallback may serve any number of names


class Paces:
    """The record of every method of one server.

    Example:
        paces.note(b"get", took_s=0.00002)  # five times
        b"get" in paces.quick               # until one call of it takes more than a millisecond

    A run that does what may wait for others counts like one that was slow: see trial.py.

    No lock: of two threads that note something at once, one may not be heard. The next one is.

    Attributes:
        quick: the methods that may be run where they are called. Never replaced by another set.
    """

    def __init__(self) -> None:
        self.quick: set[bytes] = set()
        self._left: dict[bytes, int] = {}  # runs until a method is quick

    def is_on_trial(self, method: bytes) -> bool:
        """Whether the next run of a method may be one of those after which it is known to be quick."""
        return method not in self.quick and self._left.get(method, FIRST_RUNS) <= FIRST_RUNS

    def note(
        self, method: bytes, took_s: float, *, is_over: bool = True, may_wait: bool = False
    ) -> None:
        """One run of a method.

        Args:
            is_over: False if it goes on, as coroutines and streams do.
            may_wait: it has done what may wait, even if it did not wait this time.
        """
        if may_wait:
            self.distrust(method, inf)
        elif took_s > QUICK_S or not is_over:
            self.distrust(method, took_s)
        elif method not in self.quick:
            self._trust_more(method)

    def distrust(self, method: bytes, took_s: float) -> None:
        """The method was not quick, this time."""
        self.quick.discard(method)
        if took_s > BLOCKED_S:
            self._left[method] = RUNS_AFTER_BLOCKED
        elif self._left.get(method, 0) < RUNS_AFTER_SLOW:
            self._left[method] = RUNS_AFTER_SLOW

    def _trust_more(self, method: bytes) -> None:
        left = self._left.get(method, FIRST_RUNS) - 1
        if left <= 0:
            self.quick.add(method)
            self._left.pop(method, None)
        elif method in self._left or len(self._left) + len(self.quick) < _MAX_METHODS:
            self._left[method] = left
