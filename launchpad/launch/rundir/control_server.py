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
from launchpad.launch.rundir.record import WorkerStatus

SOCKET = "control.socket"
_TOKEN = "control.token"
_AT_ONCE = 16
_CALL_S = 10.0


class Control:
    """Serves one run to processes that may read its runtime directory.

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
        def stacks_of(workers: Sequence[str]) -> dict[str, str]:
            with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="launchpad-stacks") as pool:
                return dict(zip(workers, pool.map(stacks, workers), strict=True))

        self._token_file = runtime / _TOKEN
        self._token = os.urandom(32)
        address = f"unix:{runtime / SOCKET}"
        self._server = Server("control", address=address, token=self._token)
        self._server.bind("status", lambda: [asdict(row) for row in status()])
        self._server.bind("stop", stop)
        self._server.bind("stacks", stacks_of)

    def open(self) -> None:
        """Starts to serve.

        Raises:
            OSError: there can be no new file or socket.
            RuntimeError: there can be no new thread.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(self._token_file, flags, 0o600), "wb") as file:
            file.write(self._token)
        self._server.start()

    def close(self) -> None:
        """Stops to serve."""
        self._server.stop(0.1)


@contextlib.contextmanager
def connected(runtime: Path) -> Iterator[Client[Any]]:
    """A client of the control endpoint of a run.

    Raises:
        OSError: it has none, or not any more.
    """
    token = (runtime / _TOKEN).read_bytes()
    with Client(
        f"unix:{runtime / SOCKET}",
        name="control",
        token=token,
        call_timeout=_CALL_S,
        wait_for_ready=False,
    ) as client:
        yield client
