"""The end of a script: programs still running are waited for, and how they ended becomes the exit code.

    last line of the script
      → threading's shutdown    _wait_for_all   wait, or stop if the script itself failed or was interrupted
      → atexit                  _leave          exit code ≠ 0 if a program failed and nobody was told

    SIGTERM, SIGHUP             _on_signal      ask all programs to stop, unwind the script

Waiting has to be in threading's shutdown, before the interpreter forbids new threads. An exit code can be
changed only by leaving at once, so whatever else is registered with atexit is called first.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401  cannot be imported once the script has ended; workers may need it
import contextlib
import os
import signal
import sys
import threading
from types import FrameType

from launchpad import context
from launchpad.courier.servers.main_thread import unwind
from launchpad.launch import ctrl_c, end_of_script
from launchpad.launch.ctrl_c import CtrlC
from launchpad.launch.running import Running

_POLL_S = 0.1
_runs: list[Running] = []
_exit_code = 0


def watch(running: Running) -> None:
    """From now on the end of the script cares for this run."""
    _runs[:] = [*_open_runs(), running]


def watch_signals() -> None:
    """From now on signals that would kill the script stop its programs first. Not in a worker."""
    if context.try_current() is None:
        ctrl_c.watch(_on_signal)


def _is_settled(running: Running) -> bool:
    """Whether nothing is left to wait for or to tell."""
    return running.is_done and (running.is_test or running.is_reported or running.failure() is None)


def _forget_all() -> None:
    """In a forked child: the programs are the parent's."""
    global _exit_code
    _runs.clear()
    _exit_code = 0


def _wait_for_all(error: BaseException | None = None) -> None:
    """Waits for all that run, tells about each failure as it comes, and arranges the exit code.

    Args:
      error: What ended the script, where the interpreter has not noted it yet.
    """
    global _exit_code
    error, code_of_signal = error or _error_of_script(), _exit_code
    try:
        with CtrlC(_ask_or_insist):
            _stop_what_must_not_go_on(error)
            while open_runs := _open_runs():
                for running in open_runs:
                    _look_at(running)
    except (KeyboardInterrupt, SystemExit) as interrupt:
        _exit_code = code_of_signal or ctrl_c.exit_code_after(interrupt)
        if open_runs := _open_runs():
            for running in open_runs:
                running.abandon()
            _leave_now(_exit_code)  # one more Ctrl-C: the backend's lifeline ends what is left
    if _exit_code:
        _let_ctrl_c_end_it()
        atexit.register(_leave)  # the last to be registered is the first to be called


def _on_signal(number: int, frame: FrameType | None) -> None:
    """SIGTERM or SIGHUP while the script's own code runs: as one Ctrl-C, but that no handler can miss it."""
    global _exit_code
    if not _open_runs():
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
        return
    _exit_code = ctrl_c.EXIT_CODES[signal.Signals(number)]
    _ask_all_to_stop()
    unwind(ctrl_c.exception_for(number))


def _let_ctrl_c_end_it() -> None:
    """Nothing is left to be stopped but the interpreter, which would print where it was."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _open_runs() -> list[Running]:
    return [running for running in _runs if not _is_settled(running)]


def _ask_all_to_stop() -> None:
    for running in _open_runs():
        running.ask_to_stop()


def _ask_or_insist(at_once: bool) -> bool:
    """A Ctrl-C at the end of the script asks those that were not asked, and insists on the others.

    Returns:
      Whether all had been insisted on before.
    """
    open_runs = _open_runs()
    can_do_no_more = bool(open_runs) and all(running.is_hurried for running in open_runs)
    for running in open_runs:
        running.ask_to_stop(running.is_asked)
    return can_do_no_more


def _stop_what_must_not_go_on(error: BaseException | None) -> None:
    global _exit_code
    if isinstance(error, KeyboardInterrupt):
        _exit_code = 130
        _ask_all_to_stop()
    for running in list(_runs):
        if running.is_test or error is not None or hasattr(sys, "ps1"):
            running.stop("the script has ended")


def _look_at(running: Running) -> None:
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
        with contextlib.suppress(Exception):  # nobody may be there to read it
            print(failure, file=sys.stderr, flush=True)


def _error_of_script() -> BaseException | None:
    """The exception that has ended the script: the interpreter keeps it where a debugger looks for it."""
    error = getattr(sys, "last_value", None)
    return error if isinstance(error, BaseException) else None


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
    """For programs launched by a thread when the script had ended already, and for a wait cut short."""
    if any(not running.is_done for running in _runs):
        _wait_for_all(KeyboardInterrupt())
    for running in [running for running in _runs if running.is_done and not _is_settled(running)]:
        _look_at(running)
    if _exit_code:
        _leave_now(_exit_code)


os.register_at_fork(after_in_child=_forget_all)
atexit.register(_at_last)
if end_of_script.IS_TOO_LATE:
    end_of_script.call_before(
        lambda error: _wait_for_all(None if isinstance(error, SystemExit) else error)
    )
# Private, but what concurrent.futures uses; without it the non-daemon thread of each run still waits.
getattr(threading, "_register_atexit", lambda wait: atexit.register(wait))(_wait_for_all)
