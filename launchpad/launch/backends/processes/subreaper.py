"""The keeper: the process above the host, so that nobody outlives the host either.

    launcher ── keeper ── host ── workers ── whatever they start
        └───── watched by ──┴── both

Who loses its parent is given, by the kernel, to its nearest living ancestor that adopts orphans: to the
host while that lives, then to the keeper. So a process may have left its group and its session, may have
forked twice or cleared its environment, may be the keeper of a program that a worker launched: in the end
it is a child of the keeper, which kills its children until it has none. There is no list that could be
incomplete, and no number that could by now be another process's, since only its parent can free it.

It leaves the host its way before that imports anything, so that it stays small, and then only waits.

    launcher ends without good-bye   kill the host, and then:
    host killed, or crashed          kill all that are left, remove the sockets, end as the host did
    host has said good-bye           nothing is left; end
    SIGTERM                          the launcher insists, the host does not answer: the same
    the keeper is killed             harmless: the host watches the launcher too, and workers the host
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
    """The keeper's process, and after a fork the host's.

    Args:
        lifeline, file: The host's connection to the launcher, and the briefing.
        launcher: The process whose end is ours too.
        runtime: The run's directory for sockets.
    """
    os_process.ignore_terminal()
    os_process.name_process("keeper")
    if os.getppid() != launcher:  # it has ended; no worker has begun
        shutil.rmtree(runtime, ignore_errors=True)
        os._exit(0)
    parent_fd = os_process.parent_pidfd(launcher)
    os_process.become_subreaper()
    host = os.fork()
    if host == 0:
        _become_forkserver(lifeline, file, parent_fd, runtime)
    os.close(lifeline)  # or the launcher would not notice that the host has ended
    os.close(file)
    _wait_and_clean_up(host, parent_fd, runtime)


def _become_forkserver(lifeline: int, file: int, parent_fd: int | None, runtime: str) -> NoReturn:
    os.setsid()  # what is sent to the host's group is not meant for the keeper
    from launchpad.launch.backends.processes import forkserver

    forkserver.main(lifeline, file, parent_fd, runtime)


def _wait_and_clean_up(host: int, parent_fd: int | None, runtime: str) -> NoReturn:
    """Waits for the end of the host or of the launcher, then sees to it that nothing is left."""
    signal.signal(signal.SIGTERM, lambda number, frame: os.kill(host, signal.SIGKILL))
    _wait_for_either(host, parent_fd)
    status = os.waitpid(host, 0)[1]
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


def _wait_for_either(host: int, parent_fd: int | None) -> None:
    """Until the host ends; if it is the launcher that ends, the host is killed."""
    if parent_fd is None or not hasattr(os, "pidfd_open"):
        return
    poll = select.poll()
    for fd in (parent_fd, os.pidfd_open(host)):
        poll.register(fd, select.POLLIN)
    if parent_fd in dict(poll.poll()):
        os.kill(host, signal.SIGKILL)


def _end_like(code: int) -> NoReturn:
    """With the host's exit code, or by the same signal: the launcher says what it was."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(abs(code))
