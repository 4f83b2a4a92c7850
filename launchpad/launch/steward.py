"""Steward: launches a program in the place of a script that leaves, and answers for it from then on.

script ── plan ──▶ steward, in a process of the cluster ── supervises ──▶ workers
python -m launchpad, Detached ── status, stop, logs, stacks ──▶ steward
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from launchpad.errors import LaunchError, ProgramFailed
from launchpad.launch import record, starting
from launchpad.launch.backend import Backend
from launchpad.launch.output import Output
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.run_directory import RunDirectory
from launchpad.launch.running import Running
from launchpad.launch.status import WorkerStatus

LINGER_S = 60.0
"""How long it tells how the program has ended; then it goes, too."""


class Steward:
    """Runs one program. Its methods may be called from any thread.

    Args:
      stream: Where it prints what a script would; nowhere if None.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._running: Running | None = None
        self._record: dict[str, Any] = {}

    def begin(self, plan: LaunchPlan, backend: Backend, grace_s: float) -> dict[str, Any]:
        """Launches; the record of the run.

        Raises:
          LaunchError: it could not be; nothing is left running.
        """
        run = RunDirectory.create(plan.program)
        output = Output(run, [worker.name for worker in plan.workers], self._stream)
        self._running = starting.begin(plan, backend, run, output, grace_s)
        self._record = record.left_behind(run, plan)
        return self._record

    def record(self) -> dict[str, Any]:
        """What there is to know of the run from outside; empty if none was begun."""
        return self._record

    def status(self) -> list[WorkerStatus]:
        """A row for each worker."""
        return self._its.status()

    def stop(self, at_once: bool = False) -> None:
        """Asks the program to stop; does not wait."""
        self._its.ask_to_stop(at_once)

    def stacks(self, workers: Sequence[str]) -> dict[str, str]:
        """Worker → what its threads are doing."""
        return {worker: self._its.stacks(worker) for worker in workers}

    def logs(self, worker: str, offset: int = 0) -> str:
        """What a worker has printed, in all attempts, from a character on."""
        return self._its.logs(worker)[offset:]

    def wait(self, timeout_s: float) -> bool:
        """Whether the program has ended, at the latest after so long."""
        try:
            self._its.wait(timeout_s, raise_error=False)
        except TimeoutError:
            return False
        return True

    def failure(self) -> ProgramFailed | LaunchError | None:
        """What has ended the program badly."""
        return self._its.failure()

    def exit_status(self) -> int:
        """The exit code that says how it has ended."""
        return self._its.exit_status()

    def stay(self, leave: Callable[[], object]) -> None:
        """Waits until the program has ended and everybody could hear how; then calls `leave`."""
        while not self.wait(3600.0):
            continue
        time.sleep(LINGER_S)
        leave()

    @property
    def _its(self) -> Running:
        if self._running is None:
            raise LaunchError(f"no program was begun by the steward in process {os.getpid()}")
        return self._running
