"""The memory, CPU time, threads, descriptors and files of processes, and what is left of them.

A footprint counts shared memory once, no matter how many of the processes have mapped it, and also counts
memory that only a descriptor keeps. The peak of the resident set (VmHWM) counts it in every process.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from benchmarks.harness.processes import ROOT

INTERVAL_S = 0.004
MARK = "LAUNCHPAD_BENCHMARK"

Belongings = dict[str, int]


def belongings(pid: int | str = "self") -> Belongings:
    """Return the numbers of threads, descriptors and shared mappings of a process."""
    mappings = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {
        "threads": len(os.listdir(f"/proc/{pid}/task")),
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "mappings": sum(mapping.split()[1].endswith("s") for mapping in mappings),
    }


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used, in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def growth(samples: Sequence[float]) -> float:
    """Return the growth from the median of the first three samples to that of the last three."""
    return statistics.median(samples[-3:]) - statistics.median(samples[:3])


def children(pid: int | str) -> list[int]:
    """Return the pids of a process's children, zombies included."""
    pids: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            pids += map(int, path.read_text().split())
    return pids


class MarkedScript:
    """A script whose processes and files can be found. It is killed at the end of the block.

    Its environment has a mark, which every process inherits that it starts. All its files are in one folder.

    Args:
        source: The script.
        args: Its arguments.
        options: The options of `subprocess.Popen`.
    """

    def __init__(self, source: str, *args: str, **options: Any) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.directory = self._folder.name
        self._mark = f"{MARK}={self.directory}"
        env = {**os.environ, MARK: self.directory, "PYTHONPATH": str(ROOT)}
        env["TMPDIR"] = self.directory
        env.pop("XDG_RUNTIME_DIR", None)
        script = Path(self.directory, "script.py")
        script.write_text(source)
        self.process = subprocess.Popen([sys.executable, str(script), *args], env=env, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._folder.cleanup()

    def processes(self) -> set[int]:
        """Return the pids of processes that have the mark, without zombies."""
        pids = set()
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and self._mark.encode() in (entry / "environ").read_bytes():
                    pids.add(int(entry.name))
        return pids

    def left_over(self, spared: set[int] | None = None) -> list[str]:
        """Return the processes that still run, and the files of the run that are not logs."""
        leftovers = [f"process {pid}" for pid in self.processes() - (spared or set())]
        # `os.walk` skips folders that a process removes at the same time.
        for folder, folders, names in os.walk(Path(self.directory, f"launchpad-{os.getuid()}")):
            leftovers += [str(Path(folder, name)) for name in (*folders, *names)]
        return leftovers


def resident_peak(pid: int) -> int:
    """Return the largest resident set that a process ever had, in bytes."""
    return _field(f"/proc/{pid}/status", "VmHWM:")


def resident(pid: int | str) -> int:
    return _field(f"/proc/{pid}/status", "VmRSS:")


def proportional(pid: int) -> int:
    """Return the memory of a process in bytes (PSS: memory shared by n processes counts as 1/n)."""
    return _field(f"/proc/{pid}/smaps_rollup", "Pss:")


def footprint(pids: Sequence[int]) -> int:
    """Return the bytes that the processes occupy together: their own memory, and files in memory.

    The pages that they have mapped of programs and libraries don't count. Every Python process of the
    machine shares these, and the share of one process changes as others come and go.
    """
    own = sum(_field(f"/proc/{pid}/smaps_rollup", "Pss_Anon:") for pid in pids)
    return own + sum(_shared(pids).values())


def _shared(pids: Sequence[int]) -> dict[int, int]:
    """Return the bytes of each file in memory, by inode."""
    mapped_files: dict[int, int] = {}
    open_files: dict[int, int] = {}
    for pid in pids:
        mapped_files |= dict(_mapped(pid))
        open_files |= dict(_held(pid))
    return mapped_files | open_files


def _mapped(pid: int) -> list[tuple[int, int]]:
    files = []
    with open(f"/proc/{pid}/maps") as lines:
        for line in lines:
            if "/memfd:" in line or "/dev/shm/" in line:
                span, _, _, _, inode, _ = line.split(maxsplit=5)
                begin, end = (int(number, 16) for number in span.split("-"))
                files.append((int(inode), end - begin))
    return files


def _held(pid: int) -> list[tuple[int, int]]:
    files = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{name}"
        with suppress(OSError):  # the process has closed it by now
            if os.readlink(path).startswith(("/memfd:", "/dev/shm/")):
                status = os.stat(path)
                files.append((status.st_ino, status.st_blocks * 512))
    return files


def _field(path: str, name: str) -> int:
    with open(path) as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024


class Peak:
    """The largest footprint of some processes, while the block runs.

    Example:
        with Peak([client.pid, server.pid]) as peak:
            client.ask(echo, array)
        print(peak.growth)
    """

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._before = footprint(pids)
        self._most = self._before
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    @property
    def growth(self) -> int:
        return self._most - self._before

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(INTERVAL_S):
            self._most = max(self._most, footprint(self._pids))
