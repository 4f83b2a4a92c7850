"""What a test leaves behind: processes, threads, descriptors, shared memory, files of sockets."""

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

from launchpad.launch import bases, record


@contextlib.contextmanager
def nothing_left_over(within_s: float = 5.0) -> Iterator[None]:
    """Fails if the block leaves something behind.

    That is a process, a thread, a descriptor (of a file, of a socket), shared memory (a mapping, a file in
    /dev/shm), or the directory of sockets of a run that has ended.

    Example:
      with lp.testing.nothing_left_over():
        lp.testing.run(make_program())

    Raises:
      AssertionError: naming what is left after `within_s` seconds of waiting for it to go.
    """
    before = _inventory()
    yield
    gc.collect()  # a client in a traceback closes its connections only then
    deadline = time.monotonic() + within_s
    while (left := _inventory() - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left, f"left over: {sorted(left)}"


def _inventory() -> set[str]:
    import psutil

    children = {
        f"process {p.pid} {p.name()}"
        for p in psutil.Process().children(recursive=True)
        if _lives(p)
    }
    threads = {f"thread {t.name} ({t.ident})" for t in threading.enumerate()}
    return children | threads | _descriptors() | _shared_memory() | _dead_runs()


def _lives(process: object) -> bool:
    import psutil

    assert isinstance(process, psutil.Process)
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE or process.ppid() == os.getpid()
    return False


def _descriptors() -> set[str]:
    """Each open one. Those without a name are only counted: gRPC renumbers its own after a fork."""
    named: set[str] = set()
    nameless: Counter[str] = Counter()
    for fd in set(os.listdir("/dev/fd")) - _connections_of_ray():
        with contextlib.suppress(OSError):
            target = os.readlink(f"/dev/fd/{fd}")
            if target.startswith("anon_inode:"):
                nameless[target] += 1
            elif not target.startswith("/proc/"):
                named.add(f"descriptor {fd} {target}")
    return named | _counted("descriptor", nameless)


def _connections_of_ray() -> set[str]:
    """Ray keeps those to actors that have ended for as long as it likes, more than half a minute.

    They are gRPC's, which speaks IPv4 through sockets of IPv6; launchpad's workers on Ray do not.
    """
    if "ray" not in sys.modules:
        return set()
    import psutil

    connections = psutil.Process().net_connections("tcp6")
    return {str(each.fd) for each in connections if each.raddr and "::ffff:" in each.raddr.ip}


def _shared_memory() -> set[str]:
    """Mappings of this process that others may share, and named segments that nobody else uses."""
    lines = [line.split(maxsplit=5) for line in _text(Path("/proc/self/maps")).splitlines()]
    shared = Counter(_place(line) for line in lines if line[1].endswith("s"))
    return _counted("mapping of", shared) | {f"segment {path}" for path in _segments()}


def _place(line: list[str]) -> str:
    return line[5] if len(line) > 5 else "memory"


def _segments() -> list[Path]:
    """Files in /dev/shm, but for those of other programs that run now."""
    folder = Path("/dev/shm")
    ours = [path for path in folder.glob("*") if _is_ours(path)]
    used = _mapped_by_others() if ours else ""
    return [path for path in ours if str(path) not in used]


def _is_ours(path: Path) -> bool:
    with contextlib.suppress(OSError):  # it is gone already
        return path.is_file() and path.stat().st_uid == os.getuid()
    return False


def _mapped_by_others() -> str:
    all_maps = Path("/proc").glob("[0-9]*/maps")
    return "".join(_text(maps) for maps in all_maps if maps.parent.name != str(os.getpid()))


def _text(path: Path) -> str:
    """What is in a file; nothing where there is none, or none for us."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _dead_runs() -> set[str]:
    """Directories of runs that this process has launched, that nobody holds, and that are still there."""
    records = [path for base in bases.runtime_bases() for path in base.glob(f"*/{record.NAME}")]
    ours = [path.parent for path in records if f'"pid": {os.getpid()},' in _text(path)]
    return {f"run directory {directory}" for directory in ours if not bases.is_held(directory)}


def _counted(what: str, counts: Counter[str]) -> set[str]:
    return {f"{what} {name}, the {i + 1}." for name, n in counts.items() for i in range(n)}
