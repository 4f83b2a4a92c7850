"""Ctrl-C, SIGTERM and SIGHUP while somebody waits for a program: ask, insist, give up.

    first      asks the program to stop              signal      then comes              exit code
    second     ends its workers by force             SIGINT      KeyboardInterrupt       130
    third      waits no longer                       SIGTERM     SystemExit              143
                                                     SIGHUP      SystemExit              129

An exception is raised wherever the main thread happens to be: between the note that the program stops
and the request to stop it, or just outside the `try` that was to catch it. So while the main thread waits,
the signal's handler itself asks, and the exception comes when the waiting is over.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
_INSIST = 2


class CtrlC:
    """While it is open, Ctrl-C asks; it raises KeyboardInterrupt when it is left, if there was one.

    Example:
      with CtrlC(lambda at_once: running.ask_to_stop(at_once)):
          done.wait()

    SIGTERM and SIGHUP count as well; after them it raises SystemExit with the code that a shell expects. It
    does nothing in other threads than the main one, where somebody else handles the signal (a script of its
    own, an event loop, one more CtrlC further out), and where it is ignored.

    Args:
      ask: Called with whether the program must stop at once, in the main thread, between any two of its
        steps; so it must wait for no lock. If it returns True there is nothing left to ask for, and nobody is
        waited for any longer.
      is_stopping: Whether the program was asked before: then the first one insists.

    Attributes:
      pressed: The first signal since it is open, if there was one.
    """

    def __init__(self, ask: Callable[[bool], bool | None], *, is_stopping: bool = False) -> None:
        self.pressed: int | None = None
        self._ask = ask
        self._count = int(is_stopping)
        self._before: dict[int, Any] = {}

    def __enter__(self) -> CtrlC:
        if threading.current_thread() is threading.main_thread():
            for number in filter(_is_free, EXIT_CODES):
                self._before[number] = signal.getsignal(number)
                signal.signal(number, self._on_signal)
        return self

    def __exit__(self, kind: object, error: BaseException | None, tb: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self.pressed is not None and not isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise exception_for(self.pressed)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.pressed = self.pressed or number
        self._count += 1
        if self._count > _INSIST or self._ask(self._count == _INSIST):
            raise exception_for(number)


def exception_for(number: int) -> BaseException:
    """What unwinds a script that got this signal, without a word on the screen."""
    if number == signal.SIGINT:
        return KeyboardInterrupt()
    return SystemExit(EXIT_CODES[signal.Signals(number)])


def exit_code_after(error: BaseException) -> int:
    """The exit code of a script that `exception_for` has ended."""
    return error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 130


def watch(on_signal: Callable[[int, FrameType | None], None]) -> None:
    """Has SIGTERM and SIGHUP call `on_signal`, also while nobody waits, where they would just kill.

    What it raises it raises by `courier`'s `unwind`.
    """
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, _Watch(on_signal))


class _Watch:
    """The handler that `watch` sets: a type of its own, so that `CtrlC` knows it."""

    spares_methods = True  # what `courier` asks for, so that calls may run in the main thread

    def __init__(self, on_signal: Callable[[int, FrameType | None], None]) -> None:
        self._on_signal = on_signal

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._on_signal(number, frame)


def _is_free(number: int) -> bool:
    """Whether nobody else has a handler for it."""
    handler = signal.getsignal(number)
    if number == signal.SIGINT:
        return handler is signal.default_int_handler
    return handler == signal.SIG_DFL or isinstance(handler, _Watch)
