"""The end of a script: programs still running are waited for, and how they ended becomes the exit code.

    last line of the script
      → threading's shutdown    _wait_for_all   wait, or stop if the script itself failed or was interrupted
      → atexit                  _at_exit, _exit exit code ≠ 0 if a program failed and that was not reported

    SIGTERM, SIGHUP             on_signal       ask all programs to stop, unwind the script

Waiting has to be in threading's shutdown, before the interpreter forbids new threads. An exit code can be
changed only by leaving at once, so whatever else is registered with atexit is called first.

Python 3.12.0 and 3.12.1 forbid new threads as soon as the last line has run, while programs in threads need
them (python/cpython#113964, fixed in 3.12.2). So there, and only there, `call_before` watches for the end of
the main module's code through `sys.monitoring` (PEP 669), and programs are waited for at that point.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401  cannot be imported once the script has ended; workers may need it
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from launchpad.launch import signals
from launchpad.launch.running import Running
from launchpad.launch.signals import KeyboardInterruptHandler

IS_TOO_LATE = (3, 12, 0) <= sys.version_info < (3, 12, 2)
_TOOL = 3  # none of those that debuggers, coverage and profilers have
_POLL_S = 0.1
_runs: list[Running] = []
_exit_code = 0


def watch(running: Running) -> None:
    """From now on the end of the script waits for this run."""
    _runs[:] = [*_open_runs(), running]


def call_before(at_end: Callable[[BaseException | None], None]) -> None:
    """Calls `at_end` in the main thread when the script's code ends, with what ended it.

    Does nothing where there is no script: at an interactive prompt, under a test runner's own main.
    """
    script = None
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        if frame.f_globals.get("__name__") == "__main__" and frame.f_code.co_name == "<module>":
            script = frame.f_code
        frame = frame.f_back
    if script is None or hasattr(sys, "ps1"):
        return
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
    returns, unwinds = monitoring.events.PY_RETURN, monitoring.events.PY_UNWIND
    monitoring.use_tool_id(_TOOL, "launchpad")
    monitoring.register_callback(_TOOL, returns, lambda code, offset, result: at_end(None))
    monitoring.register_callback(
        _TOOL, unwinds, lambda code, offset, error: at_end(error) if code is script else None
    )
    monitoring.set_local_events(_TOOL, script, returns)
    monitoring.set_events(_TOOL, unwinds)


def _open_runs() -> list[Running]:
    """Those of which something is left to wait for or to report."""
    return [
        running
        for running in _runs
        if not running.is_done
        or not (running.is_test or running.is_reported or running.failure() is None)
    ]


def _wait_for_all(error: BaseException | None = None) -> None:
    """Waits for all that run, reports each failure as it comes, and arranges the exit code.

    Args:
        error: What ended the script, where the interpreter has not noted it yet.
    """
    global _exit_code
    # The interpreter keeps the exception that has ended a script where a debugger looks for it.
    error, code_of_signal = error or getattr(sys, "last_value", None), _exit_code

    def ask(at_once: bool) -> bool:
        """Asks those that were not asked, at once those that were; True if all were asked that before."""
        runs = _open_runs()
        can_do_no_more = bool(runs) and all(running.skips_grace for running in runs)
        for running in runs:
            running.ask_to_stop(running.is_asked)
        return can_do_no_more

    try:
        with KeyboardInterruptHandler(ask):
            if isinstance(error, KeyboardInterrupt):
                _exit_code = 130
                for running in _open_runs():
                    running.ask_to_stop()
            for running in list(_runs):
                if running.is_test or isinstance(error, BaseException) or hasattr(sys, "ps1"):
                    running.stop("the script has ended")
            while open_runs := _open_runs():
                for running in open_runs:
                    _check_run(running)
    except (KeyboardInterrupt, SystemExit) as interrupt:
        code = interrupt.code if isinstance(interrupt, SystemExit) else 130
        _exit_code = code_of_signal or (code if isinstance(code, int) else 130)
        if open_runs := _open_runs():
            for running in open_runs:
                running.abandon()
            _exit_now(_exit_code)  # one more Ctrl-C: the backend's lifeline ends what is left
    if _exit_code:
        # Nothing is left to be stopped but the interpreter, which would print where it was.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        atexit.register(_exit)  # the last to be registered is the first to be called


def on_signal(number: int, frame: FrameType | None) -> None:
    """SIGTERM or SIGHUP while the script's own code runs: as one Ctrl-C, but that no handler can miss it."""
    global _exit_code
    open_runs = _open_runs()
    if not open_runs:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
        return
    _exit_code = signals.EXIT_CODES[signal.Signals(number)]
    for running in open_runs:
        running.ask_to_stop()
    raise signals.exception_for(number)


def _check_run(running: Running) -> None:
    """Waits a moment for one; when it has ended, prints its failure and takes its exit code."""
    global _exit_code
    try:
        running.wait(_POLL_S, raise_error=False)
    except TimeoutError:
        return
    if running.is_reported:
        return
    _exit_code = _exit_code or running.exit_status()
    failure = running.failure()
    if failure is not None:
        running.is_reported = True
        with contextlib.suppress(Exception):  # stderr may be closed
            print(failure, file=sys.stderr, flush=True)


def _exit() -> None:
    """Calls all other functions that are registered with atexit, then leaves."""
    for function in (_exit, _at_exit):
        atexit.unregister(function)
    atexit._run_exitfuncs()
    _exit_now(_exit_code)


def _exit_now(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)


def _at_exit() -> None:
    """For programs launched by a thread when the script had ended already, and for a wait cut short."""
    if any(not running.is_done for running in _runs):
        _wait_for_all(KeyboardInterrupt())
    for running in [running for running in _open_runs() if running.is_done]:
        _check_run(running)
    if _exit_code:
        _exit_now(_exit_code)


def _in_forked_child() -> None:
    """The programs are the parent's."""
    global _exit_code
    _runs.clear()
    _exit_code = 0


os.register_at_fork(after_in_child=_in_forked_child)
atexit.register(_at_exit)
if IS_TOO_LATE:
    call_before(lambda error: _wait_for_all(None if isinstance(error, SystemExit) else error))
# Private, but what concurrent.futures uses; without it the non-daemon thread of each run still waits.
getattr(threading, "_register_atexit", lambda wait: atexit.register(wait))(_wait_for_all)
