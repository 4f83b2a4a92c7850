"""Ctrl-C, held back while the main thread runs a method of a server.

Signal handlers run in the main thread, between any two lines of what it is doing. Where it waits for
an answer that harms nobody. Where it runs the method itself, it would leave a server's object half
changed, and the KeyboardInterrupt would look like something that the method has raised.
"""

from __future__ import annotations

# What `signal` wraps, at a tenth of the price: it makes no enums.
import _signal  # type: ignore[import-not-found]
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

R = TypeVar("R")

_PATIENCE_S = 0.5  # a method that goes on for longer may be stuck, and is interrupted

_handler, _set_handler = _signal.getsignal, _signal.signal
_INT, _raise_interrupt = _signal.SIGINT, _signal.default_int_handler
_TERM = _signal.SIGTERM
_HUP, _ALRM, _USR1, _USR2, _URG = (
    getattr(_signal, f"SIG{name}", _TERM) for name in ("HUP", "ALRM", "USR1", "USR2", "URG")
)


class CtrlC:
    """The guard of the main thread (see local/visit.py).

    While `fn` runs, a Ctrl-C is noted, and raised when it has ended. If that takes long, it is raised
    at once.
    """

    def __init__(self) -> None:
        self._wanted: BaseException | None = None
        self._began = 0.0

    def shield(self, fn: Callable[..., R], *args: Any) -> R | None:
        """`fn(*args)`; None, and nothing has run, where other handlers than Python's own could strike."""
        if _has_other_handlers():
            return None
        handler = _handler(_INT)
        if handler is _raise_interrupt:
            return self._hold_back(fn, *args)
        return None if callable(handler) else fn(*args)  # SIG_IGN strikes nobody

    def _hold_back(self, fn: Callable[..., R], *args: Any) -> R:
        self._wanted = None
        self._began = time.monotonic()
        _set_handler(_INT, self._note)
        try:
            return fn(*args)
        finally:
            _set_handler(_INT, _raise_interrupt)
            if self._wanted is not None:
                raise self._wanted

    def raise_later(self, error: BaseException) -> None:
        """Raises it when the method has ended; at once if that takes long."""
        is_stuck = self._wanted is not None or time.monotonic() - self._began > _PATIENCE_S
        self._wanted = error
        if is_stuck:
            raise error

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.raise_later(KeyboardInterrupt())


def unwind(error: BaseException) -> None:
    """Raises it in the main thread, but not in the middle of a method that this runs.

    For handlers of signals that say, by an attribute `spares_methods`, that they raise in no other way.
    """
    guard = getattr(_handler(_INT), "__self__", None)
    if not isinstance(guard, CtrlC):
        raise error
    guard.raise_later(error)


def _has_other_handlers() -> bool:
    return (
        (callable(term := _handler(_TERM)) and not _spares_methods(term))
        or callable(_handler(_ALRM))
        or (callable(hup := _handler(_HUP)) and not _spares_methods(hup))
        or callable(_handler(_USR1))
        or callable(_handler(_USR2))
        or callable(_handler(_URG))
    )


def _spares_methods(handler: object) -> bool:
    return getattr(handler, "spares_methods", False)
