"""Handlers of Ctrl-C, SIGTERM and SIGHUP while a script waits for a program: request, kill, give up.

    first      asks the program to stop              signal      then comes              exit code
    second     ends its workers by force             SIGINT      KeyboardInterrupt       130
    third      waits no longer                       SIGTERM     SystemExit              143
                                                     SIGHUP      SystemExit              129

A service manager may signal both a process and its process group, or signal twice at once. So a SIGTERM or
SIGHUP that comes less than a second after one that counted belongs to the same request, and does not count.
Ctrl-C comes from a person, and always counts.

An exception from a handler would be raised wherever the main thread happens to be. For example, the main
thread may have noted that the program stops, but not asked it to stop yet. Or it may be just outside the
`try` that should catch the exception. So while the main thread waits, the handler itself asks the program
to stop, and the exception comes when the wait is over.
"""

from __future__ import annotations

import functools
import math
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
_AT_ONCE = 2
_REPEAT_S = 1.0
_counted_at = -math.inf


class KeyboardInterruptHandler:
    """A block in which Ctrl-C asks a program to stop. At its end, the block then raises KeyboardInterrupt.

    Example:
        with KeyboardInterruptHandler(lambda at_once: running.ask_to_stop(at_once)):
            done.wait()

    SIGTERM and SIGHUP count as well. After one of them, the block raises SystemExit with the code that a
    shell expects. The block does nothing in threads other than the main one. It doesn't change signals that
    are ignored, or that other code handles (the script itself, an event loop, an outer block like this).

    Args:
        ask: The function that asks the program to stop. Its argument is True if the program must stop at
            once. It is called in the main thread, between any two of the thread's steps, so it must not wait
            for a lock. It returns True if nothing more can be done; the wait is then over.
        is_stopping: True if the program was already asked to stop. Then the first signal ends it by force.

    Attributes:
        pressed: The first signal in this block, if there was one.
        is_repeat: While `ask` is called, True if the signal repeats one that has just counted.
    """

    def __init__(self, ask: Callable[[bool], bool | None], *, is_stopping: bool = False) -> None:
        self.pressed: int | None = None
        self.is_repeat = False
        self._ask = ask
        self._count = int(is_stopping)
        self._before: dict[int, Any] = {}

    def __enter__(self) -> KeyboardInterruptHandler:
        if threading.current_thread() is threading.main_thread():
            for number in EXIT_CODES:
                handler = signal.getsignal(number)
                if number == signal.SIGINT:
                    is_free = handler is signal.default_int_handler
                else:
                    is_free = handler == signal.SIG_DFL or isinstance(handler, _SignalHandler)
                if is_free:
                    self._before[number] = handler
                    signal.signal(number, self._on_signal)
        return self

    def __exit__(self, kind: object, error: BaseException | None, tb: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self.pressed is not None and not isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise exception_for(self.pressed)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.pressed = self.pressed or number
        self.is_repeat = is_repeat(number)
        if self._count and self.is_repeat:
            return
        self._count += 1
        if self._count > _AT_ONCE or self._ask(self._count == _AT_ONCE):
            raise exception_for(number)


def is_repeat(number: int) -> bool:
    """Return True if a signal only repeats one that has just counted. Otherwise, count it."""
    global _counted_at
    now = time.monotonic()
    if number != signal.SIGINT:
        if now < _counted_at + _REPEAT_S:
            return True
        _counted_at = now
    return False


def exception_for(number: int) -> BaseException:
    """Return the exception that unwinds a script after this signal, with nothing printed."""
    if number == signal.SIGINT:
        return KeyboardInterrupt()
    return SystemExit(EXIT_CODES[signal.Signals(number)])


def watch(on_signal: Callable[[int, FrameType | None], None]) -> None:
    """Have SIGTERM and SIGHUP always call `on_signal`, if they would otherwise just kill the script."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, _SignalHandler(on_signal))


class _SignalHandler(functools.partial[None]):
    """The handler that `watch` sets. `KeyboardInterruptHandler` recognises it by this type."""
