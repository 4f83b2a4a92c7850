"""Hooks with which Ctrl-C ends a script without a traceback. The user pressed it, and needs no report.

    KeyboardInterrupt
      unwinds the script                    nothing is printed
      hits a callback of the interpreter    would be lost there, so it is raised again a moment later

`import launchpad` begins with this file, which imports nothing, so that the hooks cover nearly all of the
import.
"""

from __future__ import annotations

import sys

# Type checkers read this name as True. Importing `typing` takes milliseconds.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, TracebackType
    from typing import Any

waits_for_programs: set[CodeType] = set()
"""Callbacks of the interpreter that may lose a KeyboardInterrupt: atexit stops the programs after them."""


def install() -> None:
    """Install the hooks. They pass everything else on to the hooks that were there before."""
    excepthook = sys.excepthook
    unraisablehook = sys.unraisablehook

    def on_exception(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> Any:
        if not isinstance(error, KeyboardInterrupt) or hasattr(sys, "ps1"):
            return excepthook(kind, error, traceback)
        # If there is no program to stop, only the interpreter's own shutdown is left to interrupt.
        if "launchpad.launch.script_exit" not in sys.modules:
            # Don't import `signal`: that runs `exec`, after which the interpreter no longer exits with 130.
            import _signal  # type: ignore[import-not-found]

            if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
                _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

    def on_unraisable(hook_args: sys.UnraisableHookArgs) -> Any:
        if not issubclass(hook_args.exc_type, KeyboardInterrupt):
            return unraisablehook(hook_args)
        traceback = hook_args.exc_traceback
        if traceback is not None and traceback.tb_frame.f_code in waits_for_programs:
            return
        import _thread
        import contextlib
        import time

        def interrupt() -> None:
            time.sleep(0.001)  # the callback is over then
            _thread.interrupt_main()

        with contextlib.suppress(RuntimeError):  # the interpreter is ending
            _thread.start_new_thread(interrupt, ())

    sys.excepthook = on_exception
    sys.unraisablehook = on_unraisable
