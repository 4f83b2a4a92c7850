"""What processes occupy, as Linux tells it.

Shared memory is counted once, however many of the processes have mapped it, and also while it is
only held by a descriptor. The peak of the resident set (VmHWM), which counts it in every process, is
asked for separately.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType

INTERVAL_S = 0.004


def resident_peak(pid: int) -> int:
    """The largest resident set that it ever had, in bytes."""
    return _field(f"/proc/{pid}/status", "VmHWM:")


def resident(pid: int) -> int:
    return _field(f"/proc/{pid}/status", "VmRSS:")


def footprint(pids: Sequence[int]) -> int:
    """Bytes that the processes occupy together: their own, and files in memory.

    Not what they have mapped of programs and libraries. That is everybody's who runs Python here, and
    one's share of it changes as others come and go.
    """
    own = sum(_field(f"/proc/{pid}/smaps_rollup", "Pss_Anon:") for pid in pids)
    return own + sum(_shared(pids).values())


def _shared(pids: Sequence[int]) -> dict[int, int]:
    """The bytes of each file in memory, by inode."""
    mapped: dict[int, int] = {}
    held: dict[int, int] = {}
    for pid in pids:
        mapped |= dict(_mapped(pid))
        held |= dict(_held(pid))
    return mapped | held


def _mapped(pid: int) -> list[tuple[int, int]]:
    found = []
    with open(f"/proc/{pid}/maps") as lines:
        for line in lines:
            if "/memfd:" in line or "/dev/shm/" in line:
                span, _, _, _, inode, _ = line.split(maxsplit=5)
                begin, end = (int(number, 16) for number in span.split("-"))
                found.append((int(inode), end - begin))
    return found


def _held(pid: int) -> list[tuple[int, int]]:
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{name}"
        with suppress(OSError):  # closed meanwhile
            if os.readlink(path).startswith(("/memfd:", "/dev/shm/")):
                status = os.stat(path)
                found.append((status.st_ino, status.st_blocks * 512))
    return found


def _field(path: str, name: str) -> int:
    with open(path) as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024


class Peak:
    """The largest footprint of some processes while the block runs.

    Example:
        with Peak([client.pid, server.pid]) as peak:
            client.ask(echo, array)
        print(peak.growth)
    """

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._before = self._most = footprint(pids)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    @property
    def growth(self) -> int:
        return self._most - self._before

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(INTERVAL_S):
            self._most = max(self._most, footprint(self._pids))
