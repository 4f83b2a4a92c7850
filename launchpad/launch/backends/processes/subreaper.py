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
    forkserver killed, or crashed        kill all that are left, end as the forkserver did; the launcher
                                         runs, and removes its sockets
    forkserver ends after EndLaunch      nothing is left; end
    SIGTERM                              the forkserver does not answer the launcher: kill it, the same
    the subreaper is killed              harmless: the forkserver watches the launcher too, and workers it
"""

from __future__ import annotations

import os
import resource
import select
import signal
from typing import TYPE_CHECKING, NoReturn

from launchpad.launch.backends.processes import os_process

if TYPE_CHECKING:
    from pathlib import Path

_TOGETHER_S = 0.1
"""How long the end of a launcher may come after that of the forkserver, if both are killed."""


def main(lifeline: int, file: int, launcher: int) -> NoReturn:
    """The subreaper's process, and after a fork the forkserver's.

    Args:
        lifeline: The forkserver's connection to the launcher.
        file: The workers' specs.
        launcher: The process whose end ends this one.
    """
    os_process.ignore_terminal()
    os_process.name_process("subreaper")
    if os.getppid() != launcher:  # it has ended; no worker has begun
        _remove_directory(file)
        os._exit(0)
    parent_fd = os_process.parent_pidfd(launcher)
    os_process.become_subreaper()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # until there is a child to kill
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        os.setsid()  # what is sent to the forkserver's group is not meant for the subreaper
        from launchpad.launch.backends.processes import forkserver

        if not forkserver.main(lifeline, file, parent_fd):  # the launcher cannot do it any more
            _clean_up(file)
        os._exit(0)
    os.close(lifeline)  # or the launcher would not notice that the forkserver has ended
    signal.signal(signal.SIGTERM, lambda number, frame: os.kill(child, signal.SIGKILL))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    import shutil  # noqa: F401  for the end, when there is no time to lose

    if parent_fd is not None and hasattr(os, "pidfd_open"):
        poll = select.poll()
        for fd in (parent_fd, os.pidfd_open(child)):
            poll.register(fd, select.POLLIN)
        if parent_fd in dict(poll.poll()):
            os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if status:
        os_process.end_children()
        _clean_up(file, launcher_runs=parent_fd is not None and not _ends_now(parent_fd))
    _end_like(os.waitstatus_to_exitcode(status))


def _ends_now(launcher_fd: int) -> bool:
    """True if the launcher has ended as well; both may have been killed, one after the other."""
    poll = select.poll()
    poll.register(launcher_fd, select.POLLIN)
    return bool(poll.poll(_TOGETHER_S * 1000))


def _directory_of(file: int) -> Path | None:
    """The run's directory for sockets. None where the launch has not come so far."""
    name = os.fsdecode(os.pread(file, os_process.HEADER_BYTES, 0).rstrip(b"\0"))
    if not name:
        return None
    from pathlib import Path

    return Path(name)


def _remove_directory(file: int) -> None:
    """Remove that directory."""
    directory = _directory_of(file)
    if directory is not None:
        from launchpad.launch.rundir import locations

        locations.remove(directory)


def _clean_up(file: int, *, launcher_runs: bool = False) -> None:
    """Remove the run's directory, and those of programs that its workers had launched.

    A launcher that runs removes the directory itself: it still serves a socket there, and would say that
    this was taken away.
    """
    if not launcher_runs:
        _remove_directory(file)
    directory = _directory_of(file)
    if directory is not None:
        from launchpad.launch.rundir import locations

        locations.sweep(directory.parent)


def _end_like(code: int) -> NoReturn:
    """Exits with the forkserver's exit code, or by the same signal, so that the launcher can report it."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(abs(code))
