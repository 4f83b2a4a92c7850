"""Hooks that launchpad puts before the interpreter's own steps at the end of a script.

    sys.exit(running)      counts as a last line that launches: absl calls it for a script that ends with
                           `app.run(lambda _: lp.launch(program))`.
    threading._shutdown    is called by the interpreter, by this name, when the last line has run. The hook
                           waits for programs first. Once the interpreter's own function has begun, modules
                           like `concurrent.futures.process` cannot be imported, and executors refuse jobs.
                           Workers that are threads need both.

`import launchpad` installs the hooks, since absl looks `sys.exit` up before it calls the function that
launches, and a thread may launch after the last line has run.
"""

from __future__ import annotations

import functools
import sys
import threading

from launchpad.launch.excepthook import waits_for_programs

# Type checkers read this name as True. Importing `typing` takes as long as everything else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

_SCRIPT_EXIT = "launchpad.launch.script_exit"


def install() -> None:
    """Install the hooks in front of the functions that are there."""
    private: Any = threading
    sys_exit = sys.exit
    shutdown = private._shutdown
    statuses: dict[int, object] = {}  # thread → the last argument that it gave to `sys.exit`

    @functools.wraps(sys_exit)
    def exit_with(status: Any = None, /) -> NoReturn:
        running = sys.modules.get("launchpad.launch.running")
        if running is not None and isinstance(status, running.Running):
            status = None
        statuses[threading.get_ident()] = status
        sys_exit(status)

    def wait_and_shutdown() -> None:
        try:
            if _SCRIPT_EXIT in sys.modules or _may_launch_later():
                from launchpad.launch import script_exit

                script_exit.wait_for_all(given_to_exit=statuses.get(threading.get_ident(), ""))
        finally:
            shutdown()

    sys.exit = exit_with
    private._shutdown = wait_and_shutdown
    waits_for_programs.add(wait_and_shutdown.__code__)


def _may_launch_later() -> bool:
    """Return True if a thread of a script, not of a worker, outlives the last line.

    That thread may still launch a program, and a launch imports a lot.
    """
    main = threading.main_thread()
    if all(thread.daemon or thread is main for thread in threading.enumerate()):
        # Import nothing up to here: dataclasses run `exec`, and after that Ctrl-C no longer exits with 130.
        return False
    from launchpad.runtime import context

    return context.try_current() is None
