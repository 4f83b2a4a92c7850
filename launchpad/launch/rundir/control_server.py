"""The control endpoint of a run, to which `python -m launchpad` connects from another terminal.

    python -m launchpad stop ──▶ <runtime directory>/control.socket ──▶ Server ──▶ the supervisor's inbox
                                 <runtime directory>/control.token

It is an ordinary courier server on a socket that only this user can reach. A run also works without it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from launchpad.courier import Client, Server
from launchpad.launch.rundir.history import RunHistory
from launchpad.launch.rundir.record import WorkerStatus
from launchpad.telemetry.program_metrics import Metrics
from launchpad.telemetry.trace import Trace

SOCKET = "control.socket"
_TOKEN = "control.token"
RESTARTED = "restarted by `python -m launchpad restart`"
"""The reason of a restart that `python -m launchpad` asked for."""

_AT_ONCE = 16
_CALL_S = 10.0


def serve(
    runtime: Path,
    *,
    status: Callable[[], Sequence[WorkerStatus]],
    stop: Callable[[bool], None],
    stacks: Callable[[str], str],
    restart: Callable[[str], None],
    attach: Callable[[str, str, bytes, str], None],
    metrics: Callable[[float], Metrics],
    trace: Callable[[float], Trace],
    picture: Callable[[], Mapping[str, Any]],
    history: Callable[[], RunHistory],
) -> Server:
    """Serve one run to processes that may read its runtime directory.

    Args:
        stop: Asks the program to stop, without waiting; to stop at once if the argument is True.
        restart: Asks for a worker to be restarted, without waiting.
        attach: Has a worker connect its debugger to a terminal; see `Workers.attach`.
        metrics: Returns the program's numbers. Its argument is how many seconds workers have to answer.

    Raises:
        OSError: no new file or socket can be made.
        RuntimeError: no new thread can be started.
    """
    token = os.urandom(32)
    server = Server("control", address=f"unix:{runtime / SOCKET}", token=token)
    server.bind("status", lambda: [asdict(row) for row in status()])
    server.bind("stop", stop)
    server.bind("stacks", lambda workers: stacks_of(workers, stacks))
    server.bind("restart", restart)
    server.bind("attach", attach)
    server.bind("metrics", metrics)
    server.bind("trace", trace)
    server.bind("picture", picture)
    server.bind("history", history)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(runtime / _TOKEN, flags, 0o600), "wb") as file:
            file.write(token)
        server.start()
    except BaseException:
        server.stop(0.1)
        raise
    return server


def stacks_of(workers: Sequence[str], stacks: Callable[[str], str]) -> dict[str, str]:
    """Return worker → its stacks. Ask several workers at a time, since each may take a while."""
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="launchpad-stacks") as pool:
        return dict(zip(workers, pool.map(stacks, workers), strict=True))


def connected(runtime: Path) -> Client[Any]:
    """Return a client of the control endpoint of a run.

    Raises:
        OSError: the run has no control endpoint, or has ended.
    """
    token = (runtime / _TOKEN).read_bytes()
    return Client(
        f"unix:{runtime / SOCKET}",
        name="control",
        token=token,
        call_timeout=_CALL_S,
        wait_for_ready=False,
    )
