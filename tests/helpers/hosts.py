"""A server that knows which processes have started it on its host, and looks at those."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import psutil

import launchpad as lp
from launchpad.courier import CourierError
from tests import nodes
from tests.waiting import runs, until


class Server(nodes.Counter):
    """Says who has started it."""

    def ancestors(self) -> list[int]:
        """Its own process, the forkserver, the subreaper, the host, and those of Ray or Spark."""
        process = psutil.Process()
        return [process.pid, *(parent.pid for parent in process.parents()[:6])]

    def attempt(self) -> int:
        return lp.current().attempt

    def start_a_daemon(self) -> int:
        """One that has left the worker's group and session."""
        return os.posix_spawn("/bin/sleep", ["sleep", "1000"], os.environ, setsid=True)


def program_of(
    restart: lp.RestartPolicy | None = None, count: int = 1, cpus: float | None = None
) -> lp.Program:
    """Servers."""
    program = lp.Program("faults")
    with program.group("server", restart=restart, resources=lp.Resources(cpus=cpus)):
        for _ in range(count):
            program.add_node(lp.CourierNode(Server))
    return program


def answered(client: Any) -> int:
    """The attempt that answers; calls in flight when a server dies are lost."""

    def ask() -> int:
        with contextlib.suppress(CourierError):
            return int(client.attempt())
        return 0

    return until(ask)


def processes_with(value: str) -> list[psutil.Process]:
    """Return the processes with this value in their environment, except those that Ray keeps for later."""
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            is_ours = value in process.environ().values() and process.name() != "ray::IDLE"
            if is_ours and runs(process):
                processes.append(process)
    return processes
