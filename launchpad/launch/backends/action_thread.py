"""Actions: one thread that calls one function after the other, some of them after a delay.

Commands of the supervisor, messages from outside and timers come from several threads. Since one thread
handles them all, their handlers need no lock.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import queue
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from launchpad.courier.own_threads import OwnThread


class Actions:
    """The thread that calls the actions. Any thread may call `do` and `end`, only this one `call_later`.

    Args:
        on_error: Called with the exception that an action has raised. The thread then goes on.
    """

    def __init__(self, name: str, on_error: Callable[[Exception], object]) -> None:
        self._on_error = on_error
        self._inbox: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        # A heap: (when, number, action). There may be thousands. The number keeps the order of equal times.
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self._last: Callable[[], object] | None = None
        self._thread = OwnThread(target=self._work, name=name)

    def begin(self) -> None:
        self._thread.start()

    def do(self, action: Callable[..., object], *arguments: Any) -> None:
        """Have the thread call an action, after all actions that were queued before."""
        self._inbox.put(partial(action, *arguments))

    def call_later(self, delay_s: float, action: Callable[..., object], *arguments: Any) -> None:
        """Have the thread call an action after a delay."""
        called: Callable[[], object] = partial(action, *arguments)
        heapq.heappush(self._due, (time.monotonic() + delay_s, next(self._numbers), called))

    def end(self, last: Callable[[], object]) -> None:
        """Have the thread call a last action and then end. Wait until it has ended."""
        # Set this before the action is queued, because the thread compares each action with it.
        self._last = last
        self._inbox.put(last)
        self._thread.join()

    def _work(self) -> None:
        while True:
            # At each turn, first what is due, then one action of the inbox. Neither holds up the other.
            now = time.monotonic()
            actions = []
            while self._due and self._due[0][0] <= now:
                actions.append(heapq.heappop(self._due)[2])
            timeout_s = None
            if actions:
                timeout_s = 0.0
            elif self._due:
                timeout_s = self._due[0][0] - now
            with contextlib.suppress(queue.Empty):
                actions.append(self._inbox.get(timeout=timeout_s))
            for action in actions:
                try:
                    action()
                except Exception as error:
                    # Whatever the error is, the thread must not end unnoticed.
                    self._on_error(error)
                # Actions of `do` and `call_later` are partials, so none of them is the last one by accident.
                if action is self._last:
                    return
