"""What the host asks of the kernel. Where a call is Linux's own, the others get the next best thing."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from collections.abc import Iterator

OpenFiles = tuple[int, int]

_PR_SET_CHILD_SUBREAPER = 36

MARK = "LAUNCHPAD_WORKER"
"""The environment variable by which a process is known that an attempt of a worker has started."""

SHOW_STACKS: int = signal.SIGRTMAX - 5 if hasattr(signal, "SIGRTMAX") else signal.SIGQUIT
"""Has a worker write its stacks into a file of its own; one of the signals that nobody uses."""


def ignore_terminal() -> None:
    """No signal of a terminal or a careless launcher concerns this process."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGQUIT, signal.SIG_IGN)  # until a worker is ready for it: see `child`
    signal.signal(SHOW_STACKS, signal.SIG_IGN)  # the same


def become_subreaper() -> None:
    """Descendants whose parents have ended become our children, also those that left their group."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def raise_open_files() -> OpenFiles:
    """Lets this process open as many files as it may; the limits from before, for the workers."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    return before


def restore_open_files(limits: OpenFiles) -> None:
    """Takes `raise_open_files` back."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def close_all_but(keep: set[int]) -> None:
    """Closes every descriptor above the standard three that is not in `keep`."""
    low = 3
    for fd in sorted(keep):
        os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, max(low, _highest_descriptor()))


def sigchld_fd() -> int:
    """A descriptor that becomes readable when a child ends."""
    read_end, write_end = os.pipe()
    for fd in (read_end, write_end):
        os.set_blocking(fd, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    return read_end


def reset_sigchld() -> None:
    """Takes `sigchld_fd` back, in a child."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def parent_pidfd(pid: int) -> int | None:
    """A descriptor that becomes readable when that process, our parent, ends; None where there are none.

    A process that the launcher forked may hold its end of the lifeline long after it.
    """
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return None
    if os.getppid() == pid:
        return fd
    os.close(fd)  # it was gone before; the number may be another's
    return None


def set_process_group(pid: int) -> None:
    """Gives a child its process group. Parent and child both do it: it is done when either goes on."""
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)


def kill_group(pid: int) -> None:
    """Kills a child and all that is in its process group."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(OSError):
            kill(pid, signal.SIGKILL)


def has_mark(pid: int, mark: str) -> bool:
    """Whether a process has begun with that `MARK`."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f"{MARK}={mark}".encode() in file.read().split(b"\0")
    except OSError:
        return False


def is_pending(pid: int, number: signal.Signals) -> bool:
    """Whether a process has yet to take note of that signal."""
    try:
        with open(f"/proc/{pid}/status") as file:
            pending = next(line for line in file if line.startswith("ShdPnd:"))
    except (OSError, StopIteration):
        return False
    return bool(int(pending.split()[1], 16) & 1 << number - 1)


def children(of: int | None = None) -> list[int]:
    """A process's children, adopted ones too; our own by default. None where the kernel does not tell."""
    of = of or os.getpid()
    found: list[int] = []
    with contextlib.suppress(OSError):  # it has ended
        for thread in os.listdir(f"/proc/{of}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{of}/task/{thread}/children") as file:
                found += map(int, file.read().split())
    return found


def end_children() -> None:
    """Kills until no child is left; what loses its parent meanwhile becomes a child."""
    while left := children():
        for pid in left:
            kill_group(pid)
        list(ended_children(wait=True))


def kill_descendants(of: int | None = None) -> None:
    """Kills whatever this process has started, whichever group it is in, from the leaves up."""
    for pid in children(of):
        kill_descendants(pid)
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def ended_children(*, wait: bool = False) -> Iterator[tuple[int, int, int]]:
    """(pid, exit status, peak memory in bytes) of each child that has ended, its group killed too.

    Args:
        wait: Whether to wait for a first one, if there is any child.
    """
    unit = 1 if sys.platform == "darwin" else 1024
    with contextlib.suppress(ChildProcessError):  # there are no children
        while ended := _wait_for_any(0 if wait else os.WNOHANG):
            wait = False
            pid, status, usage = ended
            yield pid, status, usage.ru_maxrss * unit


def name_process(name: str) -> None:
    """What `top` and `ps -o comm` show; there is room for 15 bytes."""
    with contextlib.suppress(OSError), open("/proc/self/comm", "wb") as file:
        file.write(os.fsencode(name)[:15])


def _highest_descriptor() -> int:
    """One above the highest descriptor that is open, or a number that is high enough."""
    try:
        return max(map(int, os.listdir("/dev/fd"))) + 1
    except OSError:
        return min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 1 << 16)


def _wait_for_any(flags: int) -> tuple[int, int, resource.struct_rusage] | None:
    """What wait4 says of a child that has ended; its process group is dead by then."""
    if hasattr(os, "waitid"):
        seen = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | flags)
        if seen is None:
            return None
        kill_group(seen.si_pid)  # while nobody else can have its number
        return os.wait4(seen.si_pid, 0)
    ended = os.wait4(-1, flags)
    if not ended[0]:
        return None
    kill_group(ended[0])
    return ended
