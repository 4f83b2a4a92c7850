"""Hooks with which Ctrl-C ends a script without a traceback. The user pressed it, and needs no report.

    KeyboardInterrupt
      unwinds the script                    nothing is printed
      hits a callback of the interpreter    is raised again a moment later (there it would be lost)

`import launchpad` begins with this file, which imports nothing, so that the hooks cover nearly all of the
import.
"""

from __future__ import annotations

import sys

# Type checkers read this name as True. To import `typing` takes milliseconds.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, TracebackType
    from typing import Any

waits_for_programs: set[CodeType] = set()
"""Callbacks of the interpreter after which atexit stops the programs, so that no second Ctrl-C is needed."""


def install() -> None:
    """Put the hooks before those that are there. The latter get everything else."""
    excepthook = sys.excepthook
    unraisablehook = sys.unraisablehook

    def on_exception(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> Any:
        if not isinstance(error, KeyboardInterrupt) or hasattr(sys, "ps1"):
            return excepthook(kind, error, traceback)
        # Without a program to stop, only the interpreter's own end is left to be interrupted.
        if "launchpad.launch.script_exit" not in sys.modules:
            # Not `signal`: after an import that runs `exec`, the interpreter no longer exits with 130.
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
