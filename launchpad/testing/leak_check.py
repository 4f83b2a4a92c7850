"""A check that a test leaves no processes, threads, descriptors, shared memory or run directories behind."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from launchpad.launch.rundir import locations, record


@contextlib.contextmanager
def nothing_left_over(within_s: float = 5.0) -> Iterator[None]:
    """Fail if the block leaves something behind.

    The check looks for processes, threads, descriptors (of files and sockets), mappings of shared memory,
    and runtime directories of runs that have ended. It counts only what belongs to this process and its
    descendants. A file in /dev/shm that none of these processes has open doesn't count, because nothing shows
    which process made it.

    Example:
        with lp.testing.nothing_left_over():
          lp.testing.run(make_program())

    Raises:
        AssertionError: Something is still left after `within_s` seconds. The message lists it.
    """
    # pytest leaves these lines out of the traceback.
    __tracebackhide__ = True
    before = _inventory()
    yield
    leftovers = _inventory() - before
    if leftovers:
        # If a traceback refers to a client, the client's connections close only when it is collected.
        gc.collect()
    deadline = time.monotonic() + within_s
    while leftovers:
        leftovers = _inventory() - before
        if not leftovers or time.monotonic() >= deadline:
            break
        time.sleep(0.01)
    if leftovers:
        # Threads that ended during the loop may have held objects, which can be collected now.
        gc.collect()
        leftovers = _inventory() - before
    assert not leftovers, f"left over: {sorted(leftovers)}"


def _inventory() -> set[str]:
    names = _descendants() | {f"thread {t.name} ({t.ident})" for t in threading.enumerate()}
    # Descriptors without a name are only counted, because gRPC renumbers its descriptors after a fork.
    nameless: Counter[str] = Counter()
    descriptors = set(os.listdir("/dev/fd"))
    if "ray" in sys.modules:
        # Ray keeps its connections to ended actors for over half a minute. These connections belong to gRPC,
        # which uses IPv6 sockets for IPv4. The connections of launchpad's workers on Ray don't.
        import psutil

        theirs = psutil.Process().net_connections("tcp6")
        descriptors -= {str(e.fd) for e in theirs if e.raddr and "::ffff:" in e.raddr.ip}
    for fd in descriptors:
        with contextlib.suppress(OSError):
            target = os.readlink(f"/dev/fd/{fd}")
            if target.startswith("anon_inode:"):
                nameless[f"descriptor {target}"] += 1
            elif not target.startswith("/proc/"):
                names.add(f"descriptor {fd} {target}")
    # Mappings of this process that it may share with other processes.
    for line in (line.split(maxsplit=5) for line in _text(Path("/proc/self/maps")).splitlines()):
        if line[1].endswith("s"):
            nameless[f"mapping of {line[5] if len(line) > 5 else 'memory'}"] += 1
    names |= {f"{name}, the {i + 1}." for name, n in nameless.items() for i in range(n)}
    # Runs that this process launched, if their launcher no longer holds the directory.
    for path in (p for base in locations.runtime_bases() for p in base.glob(f"*/{record.NAME}")):
        if f'"pid": {os.getpid()},' in _text(path) and not locations.is_held(path.parent):
            names.add(f"run directory {path.parent}")
    return names


def _descendants() -> set[str]:
    """Return the descendants of this process.

    psutil would read all of /proc to find them. Usually this process has no children, and the kernel's own
    lists of children show this at less cost.
    """
    # Some kernels don't have these files. In this case, `listings` is empty.
    listings = list(Path("/proc/self/task").glob("*/children"))
    if listings and not any(map(_text, listings)):
        return set()
    import psutil

    processes = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE or process.ppid() == os.getpid():
                processes.add(f"process {process.pid} {process.name()}")
    return processes


def _text(path: Path) -> str:
    """Return the contents of a file, or "" if there is no such file or it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
