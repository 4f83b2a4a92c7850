"""The end of a script: it waits for programs that still run. The exit code says how they ended.

    last line of the script
      → before threading ends   wait_for_all    wait, or stop if the script itself failed or was interrupted
      → atexit                  _at_exit, _exit exit code ≠ 0 if a program's failure was not reported

    SIGTERM, SIGHUP             on_signal       ask all programs to stop, unwind the script

`exit_hooks` calls `wait_for_all`. To change the exit code, the script must exit at once. So everything else
that is registered with atexit is called first.

At its end, the interpreter ends each thread that a worker left running, in the middle of what the thread
does. If that is C++ code, the C++ runtime calls `terminate` (exit code 134). So the script also exits at once
if there are threads of this kind and its exit code is known. That is what `sys.exit` was given, or 0 if the
last line was reached.

Python 3.12.0 and 3.12.1 forbid new threads as soon as the last line has run, but programs in threads need new
ones (python/cpython#113964, fixed in 3.12.2). So on these versions only, launchpad watches for the end of the
main module's code through `sys.monitoring` (PEP 669), and waits for programs at that point.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401  cannot be imported once the script has ended; workers may need it
import contextlib
import dis
import gc
import io
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

from launchpad.courier import fork
from launchpad.launch import signals
from launchpad.launch.running import Running
from launchpad.launch.signals import KeyboardInterruptHandler

IS_TOO_LATE = (3, 12, 0) <= sys.version_info < (3, 12, 2)
_TOOL = 3  # not the id of debuggers, coverage or profilers
_POLL_S = 0.1
_FLUSH_S = 1.0
_runs: list[Running] = []
_exit_code = 0
_script: FrameType | None = None
_given_to_exit: object = ""
_file = vars(sys.modules["__main__"]).get("__file__")


def watch(running: Running) -> None:
    """Have the end of the script wait for this run."""
    global _script
    _runs[:] = [*_open_runs(), running]
    _script = _script or _script_frame()


def _script_frame() -> FrameType | None:
    """Return the frame of the script's code while it runs.

    None at a prompt, or under a test runner's own main.
    """
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        if frame.f_globals.get("__name__") == "__main__" and frame.f_code.co_name == "<module>":
            return None if hasattr(sys, "ps1") else frame
        frame = frame.f_back
    return None


def _wait_before_it_is_too_late() -> None:
    """Have the main thread wait for programs when the script's code ends, if there is a script."""
    frame = _script_frame()
    if frame is None:
        return
    script = frame.f_code

    def at_end(error: BaseException | None) -> None:
        wait_for_all(None if isinstance(error, SystemExit) else error)

    monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
    returns = monitoring.events.PY_RETURN
    unwinds = monitoring.events.PY_UNWIND
    monitoring.use_tool_id(_TOOL, "launchpad")
    monitoring.register_callback(_TOOL, returns, lambda code, offset, result: at_end(None))
    monitoring.register_callback(
        _TOOL, unwinds, lambda code, offset, error: at_end(error) if code is script else None
    )
    monitoring.set_local_events(_TOOL, script, returns)
    monitoring.set_events(_TOOL, unwinds)


def _open_runs() -> list[Running]:
    """Return the runs that must still be waited for or reported."""
    return [
        running
        for running in _runs
        if not running.is_done
        or not (running.is_test or running.is_reported or running.failure() is None)
    ]


def wait_for_all(error: BaseException | None = None, given_to_exit: object = "") -> None:
    """Wait for all programs that run, report each failure as it comes, and set the exit code.

    Args:
        error: The exception that ended the script, if the interpreter has not noted it yet.
        given_to_exit: What the script gave to `sys.exit`.
    """
    global _exit_code, _given_to_exit
    _given_to_exit = given_to_exit
    if _file is not None:
        # The interpreter has removed `__file__`, but inspect and multiprocessing ask for it.
        vars(sys.modules["__main__"]).setdefault("__file__", _file)
    # The interpreter keeps the exception that ended a script in `sys.last_value`, for debuggers.
    error = error or getattr(sys, "last_value", None)
    code_of_signal = _exit_code

    def ask(at_once: bool) -> bool:
        """Ask programs to stop, the second time at once. Return True if they can't be asked for more."""
        runs = _open_runs()
        can_do_no_more = bool(runs) and all(running.skips_grace for running in runs)
        for running in runs:
            running.ask_to_stop(running.is_asked and not ctrl_c.is_repeat)
        return can_do_no_more and not ctrl_c.is_repeat

    ctrl_c = KeyboardInterruptHandler(ask)
    try:
        with ctrl_c:
            if isinstance(error, KeyboardInterrupt):
                _exit_code = 130
                for running in _open_runs():
                    running.ask_to_stop()
            for running in list(_runs):
                if running.is_test or isinstance(error, BaseException) or hasattr(sys, "ps1"):
                    running.stop("the script has ended")
                else:
                    running.note_if_endless()
            for open_runs in iter(_open_runs, []):
                for running in open_runs:
                    _check_run(running)
    except (KeyboardInterrupt, SystemExit) as interrupt:
        code = interrupt.code if isinstance(interrupt, SystemExit) else 130
        _exit_code = code_of_signal or (code if isinstance(code, int) else 130)
        open_runs = _open_runs()
        if open_runs:
            for running in open_runs:
                running.abandon()
            # After one more Ctrl-C, exit at once. The backend's lifeline ends what is left.
            _exit_now(_exit_code)
    if _exit_code and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Only the interpreter is left to interrupt, and it would print where it was.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if _exit_code or _left_threads():
        # Register this last, so that it is called first.
        atexit.register(_exit)


def on_signal(number: int, frame: FrameType | None) -> None:
    """Handle SIGTERM or SIGHUP while the script's own code runs, like one Ctrl-C.

    This asks the programs to stop before it raises, so they stop even if the script catches the exception.
    """
    global _exit_code
    open_runs = _open_runs()
    if not open_runs:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
        return
    if signals.is_repeat(number) and all(running.is_asked for running in open_runs):
        return
    _exit_code = signals.EXIT_CODES[signal.Signals(number)]
    for running in open_runs:
        running.ask_to_stop()
    raise signals.exception_for(number)


def _check_run(running: Running) -> None:
    """Wait a moment for a run. If it has ended, print its failure and take its exit code."""
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
    """Call all other functions that are registered with atexit. Then exit at once, if that is needed."""
    for function in (_exit, _at_exit):
        atexit.unregister(function)
    atexit._run_exitfuncs()
    code = _exit_code or (_code_of_script() if _left_threads() else None)
    if code is not None:
        flusher = threading.Thread(target=_flush_files, daemon=True)
        try:
            flusher.start()
            # A thread that still runs may be in the middle of a write, and hold up the flush.
            flusher.join(_FLUSH_S)
        except RuntimeError:  # no new thread can be started
            _flush_files()
        _exit_now(code)


def _left_threads() -> bool:
    """Return True if threads are left in which workers ran."""
    return any(
        thread.daemon and getattr(thread, "launchpad_context", None) is not None
        for thread in threading.enumerate()
    )


def _code_of_script() -> int | None:
    """Return the exit code that the script itself asks for; None if that is not known."""
    if _script is None or hasattr(sys, "ps1"):
        return None
    if getattr(sys, "last_value", None) is not None:
        return 1
    last = _script.f_code.co_code[_script.f_lasti]
    if dis.opname[last].startswith("RETURN_"):  # not unwound by an exception
        return 0
    code = _given_to_exit
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else None


def _flush_files() -> None:
    """Flush all open files, as the interpreter would."""
    for file in gc.get_objects():
        # Use type(), because isinstance() also reads `__class__`, which runs foreign code if it is a
        # property.
        if issubclass(type(file), (io.TextIOWrapper, io.BufferedWriter)):
            with contextlib.suppress(Exception):
                file.flush()


def _exit_now(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)


def _at_exit() -> None:
    """Wait for programs that a thread launched after the script's end, or whose wait was cut short."""
    if any(not running.is_done for running in _runs):
        wait_for_all(KeyboardInterrupt())
    for running in [running for running in _open_runs() if running.is_done]:
        _check_run(running)
    if _exit_code:
        _exit_now(_exit_code)


def _in_forked_child() -> None:
    """Forget the programs, which are the parent's."""
    global _exit_code
    _runs.clear()
    _exit_code = 0


fork.reset_in_child(_in_forked_child)
atexit.register(_at_exit)
if IS_TOO_LATE:
    _wait_before_it_is_too_late()
