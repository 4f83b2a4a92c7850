"""Out of memory: the kernel kills a process for it with SIGKILL, as any process might, but counts.

memory.events         oom_kill 1      cgroup v2, the group of this process
memory.oom_control    oom_kill 1      cgroup v1, the same
/proc/vmstat          oom_kill 1      elsewhere: this machine
"""

from __future__ import annotations

import os
from collections.abc import Iterator

_FILES = {"": "memory.events", "memory": "memory.oom_control"}
_LIMITS = {"": "memory.max", "memory": "memory.limit_in_bytes"}
_NO_LIMIT_BYTES = 1 << 60


class OutOfMemory:
    """Whether the kernel has killed for want of memory since one last looked.

    Workers are in the memory cgroup of the forkserver, unless something moves them.
    """

    def __init__(self) -> None:
        self._path = next((p for p in (*_paths(_FILES), "/proc/vmstat") if _count(p) >= 0), "")
        self._seen = _count(self._path)

    def has_happened(self) -> bool | None:
        """Looks; None where the kernel does not tell."""
        before, self._seen = self._seen, _count(self._path)
        return self._seen > before if self._path else None


def limit_bytes() -> int | None:
    """The most memory that this process's cgroup may use; None where there is no limit."""
    for path in _paths(_LIMITS):
        if text := _text(path).strip():
            return int(text) if text.isdigit() and int(text) < _NO_LIMIT_BYTES else None
    return None


def _paths(names: dict[str, str]) -> Iterator[str]:
    """Where the file of our own group may be; in a container the path is often that of another view."""
    for line in _text("/proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        for controller, name in names.items():
            if controller in controllers.split(","):
                root = os.path.join("/sys/fs/cgroup", controller)
                yield f"{root}{group}/{name}"
                yield os.path.join(root, name)


def _count(path: str) -> int:
    """The number behind `oom_kill`; negative where there is none."""
    for line in _text(path).splitlines():
        name, _, number = line.partition(" ")
        if name == "oom_kill" and number.isdigit():
            return int(number)
    return -1


def _text(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except (OSError, ValueError):
        return ""
