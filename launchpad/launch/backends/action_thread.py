"""Actions: one thread that does one thing after the other, some of them later.

What a backend does for the supervisor, what it hears from outside and what is due at some time come from
several threads; done in one, none of it needs a lock.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any


class Actions:
    """The thread. `do` and `end` may be called from any thread, `call_later` from this one.

    Args:
        name: The thread's.
        on_error: Told what an action has raised; the thread goes on.
    """

    def __init__(self, name: str, on_error: Callable[[Exception], object]) -> None:
        self._on_error = on_error
        self._inbox: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._due: list[tuple[float, Callable[[], object]]] = []
        self._is_over = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def begin(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def do(self, action: Callable[..., object], *arguments: Any) -> None:
        """Has it done, after all that was given before."""
        self._inbox.put(partial(action, *arguments))

    def call_later(self, delay_s: float, action: Callable[..., object], *arguments: Any) -> None:
        """Has it done when so much time has passed."""
        self._due.append((time.monotonic() + delay_s, partial(action, *arguments)))

    def end(self, last: Callable[[], object]) -> None:
        """Has that done, and nothing after it; waits until it is."""
        self._inbox.put(partial(self._end, last))
        self._thread.join()

    def _end(self, last: Callable[[], object]) -> None:
        self._is_over = True
        last()

    def _work(self) -> None:
        while not self._is_over:
            for action in self._next():
                try:
                    action()
                except Exception as error:  # whatever it is, it must end nobody in silence
                    self._on_error(error)

    def _next(self) -> list[Callable[[], object]]:
        try:
            return [self._inbox.get(timeout=self._poll_timeout_s())]
        except queue.Empty:
            return self._taken_due()

    def _poll_timeout_s(self) -> float | None:
        if not self._due:
            return None
        return max(0.0, min(at for at, _ in self._due) - time.monotonic())

    def _taken_due(self) -> list[Callable[[], object]]:
        now = time.monotonic()
        due = [action for at, action in self._due if at <= now]
        self._due = [(at, action) for at, action in self._due if at > now]
        return due
