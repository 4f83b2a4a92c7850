"""A server for tests of large arrays in shared memory, and the places of such arrays."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from launchpad import courier
from tests.waiting import until

MB = 1 << 20


class Methods:
    """A server's methods, in the process of a test or in one of their own."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.kept: list[np.ndarray] = []
        self._entered = threading.Semaphore(0)
        self._n_counted = 0

    def echo(self, value: Any) -> Any:
        return value

    def total(self, *arrays: np.ndarray) -> int:
        return sum(int(array.sum()) for array in arrays)

    def count(self, array: np.ndarray) -> int:
        """Return how often this method has been called."""
        self._n_counted += 1
        return self._n_counted

    def give(self, n: int, value: int = 1) -> np.ndarray:
        return np.full(n, value, np.uint8)

    def rows(self, array: np.ndarray) -> Iterator[int]:
        yield from array[:3].tolist()

    def fail(self, array: np.ndarray) -> None:
        raise ValueError(f"{len(array)} are too many")

    def overwrite(self, array: np.ndarray) -> None:
        array[:] = 0

    def keep(self, array: np.ndarray) -> np.ndarray:
        self.kept.append(array)
        return array

    def kept_total(self) -> int:
        return self.total(*self.kept)

    def forget(self) -> None:
        self.kept.clear()

    def limit_descriptors(self, n: int) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (n, n))

    def overwrite_and_die_once(self, array: np.ndarray, path: str) -> int:
        total = int(array.sum())
        if not os.path.exists(path):
            Path(path).touch()
            array[:] = 0
            os._exit(1)
        return total

    def wait(self, array: np.ndarray) -> int:
        self._entered.release()
        assert self.gate.wait(60)
        return len(array)

    def open(self) -> bool:
        self.gate.set()
        return True

    def wait_until_gone(self, array: np.ndarray) -> None:
        """Returns when its caller does not wait any more; then the array is kept."""
        caller = courier.caller.current.get()
        self._entered.release()
        until(lambda: caller.is_gone(caller.call_id))
        self.keep(array)

    def are_entered(self, n: int) -> bool:
        """Waits until so many more calls are in `wait` or `wait_until_gone`."""
        return all(self._entered.acquire(timeout=20) for _ in range(n))


#: For the fixture `spawn_server`.
SERVER = """
{begin}
from tests.helpers.large_arrays import Methods
server = courier.Server("victim", address={address!r})
server.bind_object(Methods())
server.start()
print("up", flush=True)
server.join()
"""


def numbers(n: int, first: int = 0) -> np.ndarray:
    return (np.arange(n) + first).astype(np.uint8)


def n_mapped(pid: int | str = "self") -> int:
    """Mappings of segments in a process."""
    return Path(f"/proc/{pid}/maps").read_text().count("memfd:courier")


def n_open(pid: int | str = "self") -> int:
    """Descriptors of segments in a process."""
    return sum("memfd:courier" in link for link in _links(pid))


def _links(pid: int | str) -> Iterator[str]:
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            yield os.readlink(f"/proc/{pid}/fd/{fd}")


def is_shared(array: np.ndarray) -> bool:
    """True if an array lies in a segment."""
    address = array.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(number, 16) for number in line.split()[0].split("-"))
        if begin <= address < end:
            return "memfd:courier" in line
    raise AssertionError("an array that is nowhere")
