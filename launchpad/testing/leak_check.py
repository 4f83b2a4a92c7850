"""What a test leaves behind: processes, threads, descriptors, shared memory, run directories."""

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

    That is a process, a thread, a descriptor (of a file, of a socket), a mapping of shared memory, or the
    runtime directory of a run that has ended. Only what belongs to this process and its descendants counts:
    a file in /dev/shm that none of them has open does not, since nothing tells who made it.

    Example:
        with lp.testing.nothing_left_over():
          lp.testing.run(make_program())

    Raises:
        AssertionError: lists what is still left after `within_s` seconds.
    """
    __tracebackhide__ = True  # pytest then shows the error without these lines
    before = _inventory()
    yield
    left = _inventory() - before
    if left:
        gc.collect()  # a client in a traceback closes its connections only then
    deadline = time.monotonic() + within_s
    while left and (left := _inventory() - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    if left:
        gc.collect()  # what a thread held that has ended meanwhile
        left = _inventory() - before
    assert not left, f"left over: {sorted(left)}"


def _inventory() -> set[str]:
    found = _descendants() | {f"thread {t.name} ({t.ident})" for t in threading.enumerate()}
    nameless: Counter[str] = Counter()  # only counted: gRPC renumbers its descriptors after a fork
    descriptors = set(os.listdir("/dev/fd"))
    if "ray" in sys.modules:
        # Its connections to actors that have ended stay for over half a minute. They are gRPC's, which uses
        # IPv6 sockets for IPv4; launchpad's workers on Ray do not.
        import psutil

        theirs = psutil.Process().net_connections("tcp6")
        descriptors -= {str(e.fd) for e in theirs if e.raddr and "::ffff:" in e.raddr.ip}
    for fd in descriptors:
        with contextlib.suppress(OSError):
            target = os.readlink(f"/dev/fd/{fd}")
            if target.startswith("anon_inode:"):
                nameless[f"descriptor {target}"] += 1
            elif not target.startswith("/proc/"):
                found.add(f"descriptor {fd} {target}")
    # Mappings of this process that other processes may share.
    for line in (line.split(maxsplit=5) for line in _text(Path("/proc/self/maps")).splitlines()):
        if line[1].endswith("s"):
            nameless[f"mapping of {line[5] if len(line) > 5 else 'memory'}"] += 1
    found |= {f"{what}, the {i + 1}." for what, n in nameless.items() for i in range(n)}
    # Runs that this process has launched, whose launcher does not hold the directory any more.
    for path in (p for base in locations.runtime_bases() for p in base.glob(f"*/{record.NAME}")):
        if f'"pid": {os.getpid()},' in _text(path) and not locations.is_held(path.parent):
            found.add(f"run directory {path.parent}")
    return found


def _descendants() -> set[str]:
    """The processes below this one. To find them psutil reads all of /proc; most often there are none."""
    # None where the kernel has no such file.
    listings = list(Path("/proc/self/task").glob("*/children"))
    if listings and not any(map(_text, listings)):
        return set()
    import psutil

    found = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE or process.ppid() == os.getpid():
                found.add(f"process {process.pid} {process.name()}")
    return found


def _text(path: Path) -> str:
    """The contents of a file; empty where there is none, or none that may be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
