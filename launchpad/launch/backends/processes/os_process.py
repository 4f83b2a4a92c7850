"""System calls that the processes of a launch use, with substitutes for those that only Linux has."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple, cast

_PR_SET_CHILD_SUBREAPER = 36

MARK = "LAUNCHPAD_WORKER"
"""The environment variable of all processes that an attempt of a worker has started."""

HEADER_BYTES = 4096
"""The number of bytes at the start of the file with the workers' specs that hold the path of the run's
directory, if there is one."""

SHOW_STACKS: int = signal.SIGRTMAX - 5 if hasattr(signal, "SIGRTMAX") else signal.SIGQUIT
"""The signal at which a worker writes its stacks into a file of its own. Hardly any program uses it."""

END_FORKSERVER: int = signal.SIGRTMAX - 6 if hasattr(signal, "SIGRTMAX") else signal.SIGUSR1
"""The signal at which the subreaper kills the forkserver. It isn't one that a cluster may send to all
processes of a job: SIGTERM, and on Slurm SIGUSR1 or SIGUSR2, which users choose with `--signal`."""


def signal_name(number: int) -> str:
    """Return the name of a signal, or `signal NUMBER` for a real-time signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def ignore_terminal() -> None:
    """Ignore the signals of a terminal, and the signals that ask workers for their stacks."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    # Once a worker is ready, it handles the last two: see `worker_process`.
    for number in (signal.SIGINT, signal.SIGQUIT, SHOW_STACKS):
        signal.signal(number, signal.SIG_IGN)


def ignores_sigterm() -> bool:
    """Return True if this process was started with SIGTERM ignored.

    A node process on Slurm starts its forkservers like that. Slurm sends SIGTERM to all processes of a job at
    once, and then expects them to end in order, which the launcher sees to.
    """
    return signal.getsignal(signal.SIGTERM) == signal.SIG_IGN


def stop_ignoring_sigterm() -> None:
    """Have SIGTERM end this process again, unless something handles it."""
    if signal.getsignal(signal.SIGTERM) is on_ignored_signal:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def on_ignored_signal(number: int, frame: object) -> None:
    """Handle a signal by doing nothing. In contrast to SIG_IGN, no program that is executed inherits this."""


def become_subreaper() -> None:
    """Become the parent of descendants whose own parents end, even if they have left their group."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def close_all_but(keep: set[int]) -> None:
    """Close every descriptor above the standard three that is not in `keep`."""
    low = 3
    for fd in sorted(keep):
        os.closerange(low, fd)
        low = fd + 1
    try:
        end = max(map(int, os.listdir("/dev/fd"))) + 1
    except OSError:
        end = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 1 << 16)
    os.closerange(low, max(low, end))


def parent_pidfd(pid: int) -> int | None:
    """Return a descriptor that becomes readable when our parent `pid` ends; None if that isn't possible.

    The lifeline alone is not enough: a process that the launcher forked may hold the launcher's end of the
    lifeline open long after the launcher has ended.
    """
    try:
        fd = os.pidfd_open(pid)
    except (AttributeError, OSError):  # AttributeError: only Linux has it
        return None
    if os.getppid() == pid:
        return fd
    # Our parent had ended before the call, so the pid may be another process's by now.
    os.close(fd)
    return None


def set_process_group(pid: int) -> None:
    """Give a child its process group. Parent and child both call this, so that both can rely on the group."""
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)


def kill_group(pid: int) -> None:
    """Kill a child and all processes in its group."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(OSError):
            kill(pid, signal.SIGKILL)


def has_mark(pid: int, mark: str) -> bool:
    """Return True if a process began with this value of `MARK` in its environment."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f"{MARK}={mark}".encode() in file.read().split(b"\0")
    except OSError:
        return False


def is_pending(pid: int, number: signal.Signals) -> bool:
    """Return True if a process has been sent this signal and has not received it yet."""
    try:
        with open(f"/proc/{pid}/status") as file:
            pending = next(line for line in file if line.startswith("ShdPnd:"))
    except (OSError, StopIteration):
        return False
    return bool(int(pending.split()[1], 16) & 1 << number - 1)


def children(of: int | str = "self") -> list[int]:
    """List a process's children, even adopted ones; by default ours. Empty if the kernel doesn't tell."""
    pids: list[int] = []
    with contextlib.suppress(OSError):  # the process has ended
        for thread in os.listdir(f"/proc/{of}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{of}/task/{thread}/children") as file:
                pids += map(int, file.read().split())
    return pids


def end_children() -> None:
    """Kill children until none is left. A process that loses its parent while this runs becomes a child."""
    for pids in iter(children, []):
        for pid in pids:
            kill_group(pid)
        list(ended_children(wait=True))


def kill_descendants(of: int | str = "self") -> None:
    """Kill all descendants of a process, in whatever group they are, from the leaves up. By default: ours."""
    for pid in children(of):
        kill_descendants(pid)
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


class EndedChild(NamedTuple):
    """A child that was reaped. `status` is the kernel's exit status."""

    pid: int
    status: int
    peak_bytes: int


def ended_children(*, wait: bool = False) -> Iterator[EndedChild]:
    """Reap children that have ended, and kill their groups.

    Args:
        wait: True to wait until a first child ends, if there is any child.
    """
    unit = 1 if sys.platform == "darwin" else 1024
    with contextlib.suppress(ChildProcessError):  # there are no children
        while True:
            flags = 0 if wait else os.WNOHANG
            if hasattr(os, "waitid"):
                info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | flags)
                if info is None:
                    return
                # Kill its group before it is reaped, so that no other process can have its number yet.
                kill_group(info.si_pid)
                pid, status, usage = os.wait4(info.si_pid, 0)
            else:
                pid, status, usage = os.wait4(-1, flags)
                if not pid:
                    return
                kill_group(pid)
            wait = False
            yield EndedChild(pid, status, usage.ru_maxrss * unit)


def anonymous_file(name: str) -> BinaryIO:
    """Return an empty file, open for reading and writing, that no other process can open."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create(name, os.MFD_CLOEXEC), "w+b", buffering=0)
    import tempfile

    return cast(BinaryIO, tempfile.TemporaryFile(buffering=0))


def header_with(directory: str) -> bytes:
    """Return the header of the file of specs: the path of the directory that the subreaper removes."""
    return os.fsencode(directory).ljust(HEADER_BYTES, b"\0")


def name_process(name: str) -> None:
    """Set the name that `top` and `ps -o comm` show. There is room for 15 bytes."""
    with contextlib.suppress(OSError), open("/proc/self/comm", "wb") as file:
        file.write(os.fsencode(name)[:15])


def python_command(
    entry: str, *arguments: int | str, python: str = "", flags: Sequence[str] = ()
) -> list[str]:
    """Return the command line with which a new interpreter calls `entry`, for example `subreaper:main`.

    The interpreter gets the launcher's sys.path before it imports anything. Without this path, it might not
    even find launchpad, which may be a checkout beside the script, or in a folder that a test added. A
    different interpreter, `python`, has its own standard library and packages, so it gets only the rest of
    our path, and none of the flags.
    """
    path = [str(entry) for entry in sys.path]
    target = "sys.path[:]"
    if python:
        import sysconfig

        kinds = ("stdlib", "platstdlib", "purelib", "platlib")
        installed = tuple(map(sysconfig.get_path, kinds))
        endings = (".zip", "-packages")
        path = [p for p in path if not p.startswith(installed) and not p.endswith(endings)]
        target = "sys.path[:0]"
        flags = ()
    module, _, function = entry.partition(":")
    call = f"from {__package__}.{module} import {function}; {function}{arguments!a}"
    return [python or sys.executable, *flags, "-c", f"import sys; {target} = {path!a}; {call}"]
