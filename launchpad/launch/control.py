"""The control endpoint of a run: what `python -m launchpad` talks to from another terminal.

    python -m launchpad stop ──▶ <runtime directory>/control.socket ──▶ Control ──▶ the supervisor's inbox
                                 <runtime directory>/control.token

An ordinary courier server on a socket that only this user can reach. A run works as well without it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from launchpad.courier import Client, Server
from launchpad.launch.status import WorkerStatus

SOCKET = "control.socket"
_TOKEN = "control.token"
_AT_ONCE = 16
_CALL_S = 10.0


class Control:
    """Serves one run to those who come to its runtime directory.

    Args:
      runtime: The run's own directory.
      status: Gives a row for each worker.
      stop: Asks the program to stop, at once or in good order; returns without waiting.
      stacks: Gives the stacks of a worker's threads.
    """

    def __init__(
        self,
        runtime: Path,
        *,
        status: Callable[[], Sequence[WorkerStatus]],
        stop: Callable[[bool], None],
        stacks: Callable[[str], str],
    ) -> None:
        self._status, self._stop, self._stacks = status, stop, stacks
        token = os.urandom(32)
        fd = os.open(runtime / _TOKEN, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(token)
        self._server = Server("control", address=_address(runtime), token=token)
        self._server.bind("status", self.status)
        self._server.bind("stop", self._stop)
        self._server.bind("stacks", self.stacks)
        self._server.start()

    def status(self) -> list[dict[str, Any]]:
        """The rows, as plain data."""
        return [asdict(row) for row in self._status()]

    def stacks(self, workers: Sequence[str]) -> dict[str, str]:
        """Worker → the stacks of its threads, some workers at a time."""
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="launchpad-stacks") as pool:
            return dict(zip(workers, pool.map(self._stacks, workers), strict=True))

    def close(self) -> None:
        """Serves no more."""
        self._server.stop(0.1)


@contextlib.contextmanager
def connected(runtime: Path) -> Iterator[Client[Any]]:
    """A client of the control endpoint of a run.

    Raises:
      OSError: it has none, or not any more.
    """
    token = (runtime / _TOKEN).read_bytes()
    address = _address(runtime)
    with Client(
        address, name="control", token=token, call_timeout=_CALL_S, wait_for_ready=False
    ) as client:
        yield client


def _address(runtime: Path) -> str:
    return f"unix:{runtime / SOCKET}"
