"""Ctrl-C ends a script without a traceback: who presses it knows where the script ends.

    KeyboardInterrupt
      unwinds the script                    nothing is printed
      hits a callback of the interpreter    comes again a moment later (it would be printed there, and lost)

`import launchpad` begins with this, and this imports nothing, so that it holds for nearly all of the import.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as checkers read it; `typing` takes milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any


def install() -> None:
    """Hooks in before whatever hooks there are; these get everything else."""
    sys.excepthook = _hook_before(sys.excepthook)
    sys.unraisablehook = _unraisable_hook_before(sys.unraisablehook)


def _hook_before(
    original: Callable[[type[BaseException], BaseException, TracebackType | None], Any],
) -> Callable[[type[BaseException], BaseException, TracebackType | None], Any]:
    def hook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, KeyboardInterrupt) and not hasattr(sys, "ps1"):
            _let_one_more_end_it()
        else:
            original(kind, error, traceback)

    return hook


def _unraisable_hook_before(
    original: Callable[[sys.UnraisableHookArgs], Any],
) -> Callable[[sys.UnraisableHookArgs], Any]:
    def hook(what: sys.UnraisableHookArgs) -> None:
        if issubclass(what.exc_type, KeyboardInterrupt):
            _come_again()
        else:
            original(what)

    return hook


def _come_again() -> None:
    """Presses once more, from outside, a moment after the callback is over."""
    import _thread
    import contextlib
    import time

    def press() -> None:
        time.sleep(0.001)
        _thread.interrupt_main()

    with contextlib.suppress(RuntimeError):  # the interpreter is ending
        _thread.start_new_thread(press, ())


def _let_one_more_end_it() -> None:
    """When no program is to be stopped, only the interpreter's own end is left to be interrupted."""
    if "launchpad.launch.at_exit" in sys.modules:
        return
    # Not `signal`: an import that runs `exec` has the interpreter forget that it is to exit with 130.
    import _signal  # type: ignore[import-not-found]

    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
