"""Actions: one thread that calls one function after the other, some of them later.

What the supervisor commands, what arrives from outside and what is due at some time come from several
threads; called in one, none of it needs a lock.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from launchpad.courier.own_threads import OwnThread


class Actions:
    """The thread. `do` and `end` may be called from any thread, `call_later` from this one.

    Args:
        on_error: Called with what an action has raised; the thread goes on.
    """

    def __init__(self, name: str, on_error: Callable[[Exception], object]) -> None:
        self._on_error = on_error
        self._inbox: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._due: list[tuple[float, Callable[[], object]]] = []
        self._last: Callable[[], object] | None = None
        self._thread = OwnThread(target=self._work, name=name)

    def begin(self) -> None:
        self._thread.start()

    def do(self, action: Callable[..., object], *arguments: Any) -> None:
        """Has an action called, after all that were given before."""
        self._inbox.put(partial(action, *arguments))

    def call_later(self, delay_s: float, action: Callable[..., object], *arguments: Any) -> None:
        """Has an action called when so much time has passed."""
        self._due.append((time.monotonic() + delay_s, partial(action, *arguments)))

    def end(self, last: Callable[[], object]) -> None:
        """Has that called, and nothing after it; waits until it has returned."""
        self._last = last
        self._inbox.put(last)
        self._thread.join()

    def _work(self) -> None:
        while True:
            timeout_s = None
            if self._due:
                timeout_s = max(0.0, min(at for at, _ in self._due) - time.monotonic())
            try:
                actions = [self._inbox.get(timeout=timeout_s)]
            except queue.Empty:
                now = time.monotonic()
                actions = [action for at, action in self._due if at <= now]
                self._due = [(at, action) for at, action in self._due if at > now]
            for action in actions:
                try:
                    action()
                except Exception as error:  # whatever it is, the thread must not end unnoticed
                    self._on_error(error)
                if action is self._last:  # never one of `do` or `call_later`: those are partials
                    return
