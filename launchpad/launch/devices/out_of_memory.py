"""Kills for lack of memory. The kernel sends SIGKILL, as any process might, but it counts these kills.

memory.events         oom_kill 1      cgroup v2, the group of this process
memory.oom_control    oom_kill 1      cgroup v1, the same
/proc/vmstat          oom_kill 1      elsewhere, the whole machine
"""

from __future__ import annotations

import os

from launchpad.launch.devices import cgroup

_FILES = {"": "memory.events", "memory": "memory.oom_control"}
_LIMITS = {"": "memory.max", "memory": "memory.limit_in_bytes"}
_NO_LIMIT_BYTES = 1 << 60


class OutOfMemory:
    """A watch that shows if the kernel has killed a process because memory ran out.

    Workers are in the memory cgroup of the forkserver, unless something moves them.
    """

    def __init__(self) -> None:
        self._path = next(
            (p for p in (*cgroup.paths(_FILES), "/proc/vmstat") if _count(p) >= 0), ""
        )
        self._seen = _count(self._path)

    def has_happened(self) -> bool | None:
        """Return True if the kernel has killed a process since the last call; None if it doesn't tell."""
        before = self._seen
        self._seen = _count(self._path)
        return self._seen > before if self._path else None


def limit_bytes() -> int | None:
    """Return the most memory that this process's cgroup may use; None if there is no limit."""
    for path in cgroup.paths(_LIMITS):
        text = cgroup.text_of(path).strip()
        if text:
            return int(text) if text.isdigit() and int(text) < _NO_LIMIT_BYTES else None
    return None


def usable_bytes() -> int:
    """Return the most memory that this process may use: what is installed, or its cgroup's limit."""
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = limit_bytes()
    return installed if limit is None else min(installed, limit)


def _count(path: str) -> int:
    """Return the number after `oom_kill`; -1 if the file does not have it."""
    for line in cgroup.text_of(path).splitlines():
        name, _, number = line.partition(" ")
        if name == "oom_kill" and number.isdigit():
            return int(number)
    return -1
