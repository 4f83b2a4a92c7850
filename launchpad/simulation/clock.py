"""A clock whose time passes only when something is due."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple


class _Entry(NamedTuple):
    """An action that is due at a time. The number is unique, so two actions are never compared."""

    at: float
    number: int
    action: Callable[[], object]


class VirtualClock:
    """A clock that jumps from one action to the next. Actions of the same time run in the order of calls.

    Attributes:
        now: The virtual time, in seconds since the beginning.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._numbers = itertools.count()
        self._actions: list[_Entry] = []

    def call_later(self, delay_s: float, action: Callable[..., object], *arguments: Any) -> None:
        """Call an action after a delay. With an infinite delay, never call it."""
        if delay_s < math.inf:
            entry = _Entry(self.now + delay_s, next(self._numbers), partial(action, *arguments))
            heapq.heappush(self._actions, entry)

    def next_at(self) -> float:
        """Return when the next action is due; infinity if there is no action."""
        return self._actions[0].at if self._actions else math.inf

    def advance(self) -> None:
        """Jump to the next action, and call it."""
        entry = heapq.heappop(self._actions)
        self.now = entry.at
        entry.action()
