"""Ctrl-C while somebody waits for a program: the first asks it to stop, the second insists, the third raises.

A KeyboardInterrupt is raised wherever the main thread happens to be: between the note that the program stops
and the request to stop it, or just outside the `try` that was to catch it. So while the main thread waits,
the signal's handler itself asks, and the exception comes when the waiting is over.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType

_INSIST = 2


class CtrlC:
    """While it is open, Ctrl-C asks; it raises KeyboardInterrupt when it is left, if there was one.

    Example:
      with CtrlC(lambda at_once: running.ask_to_stop(at_once)):
          done.wait()

    It does nothing in other threads than the main one, where somebody else handles the signal (a script of
    its own, an event loop, one more CtrlC further out), and where it is ignored.

    Args:
      ask: Called with whether the program must stop at once, in the main thread, between any two of its
        steps; so it must wait for no lock.
      is_stopping: Whether the program was asked before: then the first one insists.

    Attributes:
      was_pressed: Whether there was one since it is open.
    """

    def __init__(self, ask: Callable[[bool], None], *, is_stopping: bool = False) -> None:
        self.was_pressed = False
        self._ask = ask
        self._count = int(is_stopping)
        self._is_ours = False

    def __enter__(self) -> CtrlC:
        self._is_ours = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        if self._is_ours:
            signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, kind: object, error: BaseException | None, tb: object) -> None:
        if self._is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self.was_pressed and not isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.was_pressed = True
        self._count += 1
        if self._count > _INSIST:
            raise KeyboardInterrupt
        self._ask(self._count == _INSIST)
