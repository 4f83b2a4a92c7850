"""The subreaper: the process above the forkserver, so that no process outlives the forkserver either.

    launcher ── subreaper ── forkserver ── workers ── whatever they start
        └───── watched by ───────┴── both

When a process loses its parent, the kernel gives it to its nearest ancestor that adopts orphans: to the
forkserver while the forkserver runs, then to the subreaper. A process may leave its group and its session,
fork twice or clear its environment; it may be the subreaper of a program that a worker launched. In the end
it is still a child of the subreaper, which kills its children until none is left. There is no list of
processes that could be incomplete. And no pid can belong to another process by then, because only the parent
can free it.

The subreaper forks the forkserver before it imports anything, so the subreaper stays small. Then it only
waits.

    launcher ends without EndLaunch      kill the forkserver, then do as in the next line
    forkserver killed, or crashed        kill all processes that are left, and end as the forkserver did; a
                                         launcher that still runs removes its sockets
    forkserver ends after EndLaunch      nothing is left; end
    END_FORKSERVER, SIGTERM              the forkserver does not answer the launcher: kill it, do the same
    the subreaper is killed              harmless: the forkserver watches the launcher, workers the forkserver
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
"""Seconds after the forkserver's end within which the launcher's end may come, if both are killed."""


def main(lifeline: int, file: int, launcher: int) -> NoReturn:
    """Run the subreaper's process, and in a fork of it the forkserver's.

    Args:
        lifeline: The descriptor of the forkserver's connection to the launcher.
        file: The descriptor of the file with the workers' specs.
        launcher: The pid of the launcher. This process ends when the launcher does.
    """
    os_process.ignore_terminal()
    os_process.name_process("subreaper")
    if os.getppid() != launcher:
        # The launcher has ended already, and no worker has begun.
        _remove_directory(file)
        os._exit(0)
    parent_fd = os_process.parent_pidfd(launcher)
    os_process.become_subreaper()
    # Block these until there is a child to kill, because the handler below needs the child's pid.
    ending = [os_process.END_FORKSERVER]
    if not os_process.ignores_sigterm():
        ending.append(signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ending)
        # The subreaper must not get signals that are sent to the forkserver's group.
        os.setsid()
        from launchpad.launch.backends.processes import forkserver

        if not forkserver.main(lifeline, file, parent_fd):
            # The launcher is gone, and cannot clean up itself.
            _clean_up(file)
        os._exit(0)
    # If this end stayed open, the launcher would not notice the forkserver's end.
    os.close(lifeline)
    for number in ending:
        signal.signal(number, lambda number, frame: os.kill(child, signal.SIGKILL))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ending)
    # Import this now, because at the end there may be no time for it.
    import shutil  # noqa: F401

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
    """Return True if the launcher has ended as well. Both may have been killed, one after the other."""
    poll = select.poll()
    poll.register(launcher_fd, select.POLLIN)
    return bool(poll.poll(_TOGETHER_S * 1000))


def _directory_of(file: int) -> Path | None:
    """Return the run's directory for sockets; None if the launch has not made one yet."""
    name = os.fsdecode(os.pread(file, os_process.HEADER_BYTES, 0).rstrip(b"\0"))
    if not name:
        return None
    from pathlib import Path

    return Path(name)


def _remove_directory(file: int) -> None:
    """Remove the run's directory for sockets, if there is one."""
    directory = _directory_of(file)
    if directory is not None:
        from launchpad.launch.rundir import locations

        locations.remove(directory)


def _clean_up(file: int, *, launcher_runs: bool = False) -> None:
    """Remove the run's directory, and the directories of programs that its workers had launched.

    A launcher that still runs removes the directory itself. It serves a socket there, and would report that
    the socket was taken away.
    """
    if not launcher_runs:
        _remove_directory(file)
    directory = _directory_of(file)
    if directory is not None:
        from launchpad.launch.rundir import locations

        locations.sweep(directory.parent)


def _end_like(code: int) -> NoReturn:
    """Exit with the forkserver's exit code, or by the same signal, so that the launcher can report it."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(abs(code))
