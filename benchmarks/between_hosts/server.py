"""The server of a pair of hosts: `python -m benchmarks.between_hosts.server`.

It notes each call that it runs in a file, and forces that onto its host's disk before it answers. So what it
has answered is still known after its host lost its power. (The disks of namespaces would keep it anyway.)
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import time
from collections.abc import Iterator
from pathlib import Path

from launchpad import courier
from launchpad.courier import keyring
from launchpad.testing import History

RECORD = Path("/var/calls")
"""The server's record on its host, and the callers' on theirs."""

KEYS = Path("/var/keys.pickle")
"""The token and the credentials of the run, on each host."""

PORT = 7000
HOLD_S = 60.0
ITEM_S = 0.02


class Server:
    """The methods. Each notes its call once, at the moment at which it has an effect."""

    def __init__(self, record: Path) -> None:
        self._history = History(record)
        self._disk = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._is_released = False

    def note(self, call: str, seconds: float) -> str:
        """Take so long, half of it after the call has had its effect. Return the call's id."""
        time.sleep(seconds / 2)
        self._ran(call)
        time.sleep(seconds / 2)
        return call

    async def hold(self, call: str) -> str:
        """Take very long, or until `release`."""
        self._ran(call)
        ends_at = time.monotonic() + HOLD_S
        while time.monotonic() < ends_at and not self._is_released:
            await asyncio.sleep(ITEM_S)
        return call

    def count(self, call: str, n: int) -> Iterator[int]:
        """Make a stream of the numbers below `n`."""
        self._ran(call)
        for number in range(n):
            time.sleep(ITEM_S)
            yield number

    def hold_stream(self, call: str) -> Iterator[int]:
        """Make a stream of numbers for very long, or until `release`."""
        for number in self.count(call, round(HOLD_S / ITEM_S)):
            if self._is_released:
                return
            yield number

    def add(self, call: str, numbers: Iterator[int]) -> int:
        """Return the sum of a stream of numbers."""
        total = sum(numbers)
        self._ran(call)
        return total

    def release(self) -> None:
        """End what takes very long."""
        self._is_released = True

    def _ran(self, call: str) -> None:
        self._history.ran(call)
        os.fsync(self._disk)


def add_keys() -> None:
    """Give this process the token and the credentials of the run."""
    keyring.add("tcp:", *pickle.loads(KEYS.read_bytes()))


def main() -> None:
    add_keys()
    server = courier.Server("notes", address=f"tcp:0.0.0.0:{PORT}")
    server.bind_object(Server(RECORD))
    server.start()
    print("serves", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.join()


if __name__ == "__main__":
    main()
