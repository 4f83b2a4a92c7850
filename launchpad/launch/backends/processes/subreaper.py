"""The subreaper: the process above the forkserver, so that no process outlives the forkserver either.

    launcher ── subreaper ── forkserver ── workers ── whatever they start
        └───── watched by ───────┴── both

A process that loses its parent is given, by the kernel, to its nearest ancestor that adopts orphans: to
the forkserver while that runs, then to the subreaper. So a process may have left its group and its
session, may have forked twice or cleared its environment, may be the subreaper of a program that a worker
launched: in the end it is a child of this one, which kills its children until it has none. There is no list
that could be incomplete, and no number that could by now be another process's, since only its parent can
free it.

It forks the forkserver before that imports anything, so that it stays small, and then only waits.

    launcher ends without EndLaunch      kill the forkserver, and then:
    forkserver killed, or crashed        kill all that are left, remove the sockets, end as the forkserver did
    forkserver ends after EndLaunch      nothing is left; end
    SIGTERM                              the forkserver does not answer the launcher: kill it, the same
    the subreaper is killed              harmless: the forkserver watches the launcher too, and workers it
"""

from __future__ import annotations

import os
import resource
import select
import shutil
import signal
from typing import NoReturn

from launchpad.launch.backends.processes import os_process


def main(lifeline: int, file: int, launcher: int, runtime: str) -> NoReturn:
    """The subreaper's process, and after a fork the forkserver's.

    Args:
        lifeline: The forkserver's connection to the launcher.
        file: The workers' specs.
        launcher: The process whose end ends this one.
        runtime: The run's directory for sockets.
    """
    os_process.ignore_terminal()
    os_process.name_process("subreaper")
    if os.getppid() != launcher:  # it has ended; no worker has begun
        shutil.rmtree(runtime, ignore_errors=True)
        os._exit(0)
    parent_fd = os_process.parent_pidfd(launcher)
    os_process.become_subreaper()
    child = os.fork()
    if child == 0:
        os.setsid()  # what is sent to the forkserver's group is not meant for the subreaper
        from launchpad.launch.backends.processes import forkserver

        forkserver.main(lifeline, file, parent_fd, runtime)
    os.close(lifeline)  # or the launcher would not notice that the forkserver has ended
    os.close(file)
    signal.signal(signal.SIGTERM, lambda number, frame: os.kill(child, signal.SIGKILL))
    if parent_fd is not None and hasattr(os, "pidfd_open"):
        poll = select.poll()
        for fd in (parent_fd, os.pidfd_open(child)):
            poll.register(fd, select.POLLIN)
        if parent_fd in dict(poll.poll()):
            os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if status:
        os_process.end_children()
        clean_up(runtime)
    _end_like(os.waitstatus_to_exitcode(status))


def clean_up(runtime: str) -> None:
    """Removes the run's directory, and those of programs that its workers had launched."""
    shutil.rmtree(runtime, ignore_errors=True)
    from pathlib import Path

    from launchpad.launch.rundir.locations import sweep

    sweep(Path(runtime).parent)


def _end_like(code: int) -> NoReturn:
    """Exits with the forkserver's exit code, or by the same signal, so that the launcher can report it."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(abs(code))
