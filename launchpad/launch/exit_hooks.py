"""Hooks that launchpad puts before the interpreter's own steps at the end of a script.

    sys.exit(running)      is as if that were the last line: absl's `app.run(lambda _: lp.launch(program))`
    threading._shutdown    is what the interpreter calls, by this name, when the last line has run: programs
                           are waited for first. Once it has begun, modules like `concurrent.futures.process`
                           cannot be imported, and executors refuse jobs; workers that are threads need both

Installed by `import launchpad`: absl looks `sys.exit` up before it calls the function that launches, and a
thread may launch when the last line has run.
"""

from __future__ import annotations

import functools
import sys
import threading

from launchpad.launch.excepthook import waits_for_programs

TYPE_CHECKING = False  # as checkers read it; `typing` takes as long to import as all else here
if TYPE_CHECKING:
    from typing import Any, NoReturn

_SCRIPT_EXIT = "launchpad.launch.script_exit"


def install() -> None:
    """Puts hooks before what there is."""
    private: Any = threading
    sys_exit, shutdown = sys.exit, private._shutdown
    given: dict[int, object] = {}  # thread → what it called `sys.exit` with last

    @functools.wraps(sys_exit)
    def exit_with(status: Any = None, /) -> NoReturn:
        running = sys.modules.get("launchpad.launch.running")
        if running is not None and isinstance(status, running.Running):
            status = None
        given[threading.get_ident()] = status
        sys_exit(status)

    def wait_and_shutdown() -> None:
        try:
            if _SCRIPT_EXIT in sys.modules or _may_launch_later():
                from launchpad.launch import script_exit

                script_exit.wait_for_all(given_to_exit=given.get(threading.get_ident(), ""))
        finally:
            shutdown()

    sys.exit, private._shutdown = exit_with, wait_and_shutdown
    waits_for_programs.add(wait_and_shutdown.__code__)


def _may_launch_later() -> bool:
    """Return True if a thread of a script, not of a worker, outlives the last line.

    It may still launch a program, and a launch imports a lot.
    """
    main = threading.main_thread()
    if all(thread.daemon or thread is main for thread in threading.enumerate()):
        return False  # and nothing is imported: dataclasses `exec`, and then Ctrl-C no longer exits with 130
    from launchpad.runtime import context

    return context.try_current() is None
