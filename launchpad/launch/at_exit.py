"""The end of a script: programs still running are waited for, and a failure becomes the exit code.

    last line of the script
      → threading's shutdown    _wait_for_all   wait, or stop if the script itself failed or was interrupted
      → atexit                  _leave          exit code ≠ 0 if a program failed and nobody was told

Waiting has to be in threading's shutdown, before the interpreter forbids new threads. An exit code can be
changed only by leaving at once, so whatever else is registered with atexit is called first.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401  cannot be imported once the script has ended; workers may need it
import contextlib
import os
import sys
import threading

from launchpad.launch import end_of_script
from launchpad.launch.ctrl_c import CtrlC
from launchpad.launch.running import Running

_POLL_S = 0.1
_runs: list[Running] = []
_exit_code = 0


def watch(running: Running) -> None:
    """From now on the end of the script cares for this run."""
    _runs[:] = [*_open_runs(), running]


def _is_settled(running: Running) -> bool:
    """Whether nothing is left to wait for or to tell."""
    return running.is_done and (running.is_test or running.is_reported or running.failure() is None)


def _forget_all() -> None:
    """In a forked child: the programs are the parent's."""
    global _exit_code
    _runs.clear()
    _exit_code = 0


def _wait_for_all(script_failed: bool = False) -> None:
    """Waits for all that run, tells about each failure as it comes, and arranges the exit code."""
    global _exit_code
    try:
        _stop_what_must_not_go_on(script_failed or _script_failed())
        with CtrlC(_ask_all_to_stop):
            while open_runs := _open_runs():
                for running in open_runs:
                    _look_at(running)
    except KeyboardInterrupt:
        if _open_runs():
            _leave_now(130)  # one more Ctrl-C: the backend's lifeline ends what is left
        _exit_code = 130
    if _exit_code:
        atexit.register(_leave)  # the last to be registered is the first to be called


def _open_runs() -> list[Running]:
    return [running for running in _runs if not _is_settled(running)]


def _ask_all_to_stop(at_once: bool) -> None:
    for running in _open_runs():
        running.ask_to_stop(at_once)


def _stop_what_must_not_go_on(script_failed: bool) -> None:
    for running in list(_runs):
        if running.is_test or script_failed or hasattr(sys, "ps1"):
            with contextlib.suppress(KeyboardInterrupt):
                running.stop("the script has ended")


def _look_at(running: Running) -> None:
    global _exit_code
    try:
        running.wait(_POLL_S, raise_error=False)
    except TimeoutError:
        return
    failure = running.failure()
    if failure is not None and not running.is_reported:
        running.is_reported = True
        _exit_code = _exit_code or 1
        with contextlib.suppress(Exception):  # nobody may be there to read it
            print(failure, file=sys.stderr, flush=True)


def _script_failed() -> bool:
    """Whether an exception has ended the script: the interpreter keeps it where a debugger looks for it."""
    return getattr(sys, "last_value", None) is not None


def _leave() -> None:
    """Lets all others that registered with atexit have their turn, then leaves."""
    for function in (_leave, _at_last):
        atexit.unregister(function)
    atexit._run_exitfuncs()
    _leave_now(_exit_code)


def _leave_now(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)


def _at_last() -> None:
    """For programs launched by a thread when the script had ended already."""
    for running in [running for running in _runs if running.is_done and not _is_settled(running)]:
        _look_at(running)
    if _exit_code:
        _leave_now(_exit_code)


os.register_at_fork(after_in_child=_forget_all)
atexit.register(_at_last)
if end_of_script.IS_TOO_LATE:
    end_of_script.call_before(
        lambda error: _wait_for_all(error is not None and not isinstance(error, SystemExit))
    )
# Private, but what concurrent.futures uses; without it the non-daemon thread of each run still waits.
getattr(threading, "_register_atexit", lambda wait: atexit.register(wait))(_wait_for_all)
