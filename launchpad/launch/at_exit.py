"""The end of a script: programs still running are waited for, and a failure becomes the exit code.

    last line of the script
      → threading's shutdown     _wait_for_all: wait, or stop if the script itself failed or was interrupted
      → atexit                   _leave: exit code ≠ 0 if a program failed and nobody was told

Waiting has to be in threading's shutdown, before the interpreter forbids new threads. An exit code can be
changed only by leaving at once, which skips what was registered with atexit before launchpad was imported;
of that, logging is flushed by hand.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading

from launchpad.launch import end_of_script
from launchpad.launch.running import Running, print_failure

_runs: list[Running] = []
_exit_code = 0


def watch(running: Running) -> None:
    """From now on the end of the script cares for this run."""
    _runs[:] = [r for r in _runs if not r.is_done or (r.failure() and not r.is_reported)]
    _runs.append(running)


def _wait_for_all(script_failed: bool = False) -> None:
    for running in list(_runs):
        try:
            _wait_for(running, script_failed or _script_failed())
        except KeyboardInterrupt:
            _leave_now(130)  # a third Ctrl-C: the backend's lifeline ends what is left


def _wait_for(running: Running, script_failed: bool) -> None:
    global _exit_code
    try:
        if running.is_test or script_failed or hasattr(sys, "ps1"):
            running.stop("the script has ended")
        running.wait(raise_error=False)
    except KeyboardInterrupt:
        _exit_code = 130
    failure = running.failure()
    if failure is not None and not running.is_reported and not running.is_test:
        print_failure(failure)
        running.is_reported = True
        _exit_code = _exit_code or 1


def _script_failed() -> bool:
    """Whether an exception has ended the script: the interpreter keeps it where a debugger looks for it."""
    return getattr(sys, "last_value", None) is not None


def _leave() -> None:
    if _exit_code:
        _leave_now(_exit_code)


def _leave_now(code: int) -> None:
    if "logging" in sys.modules:
        sys.modules["logging"].shutdown()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
    os._exit(code)


atexit.register(_leave)
if end_of_script.IS_TOO_LATE:
    end_of_script.call_before(
        lambda error: _wait_for_all(error is not None and not isinstance(error, SystemExit))
    )
# Private, but what concurrent.futures uses; without it the non-daemon thread of each run still waits.
getattr(threading, "_register_atexit", lambda wait: atexit.register(wait))(_wait_for_all)
