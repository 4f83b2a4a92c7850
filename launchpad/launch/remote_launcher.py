"""The launcher of a detached program. It launches the program instead of the script, then serves requests.

script ── plan ──▶ RemoteLauncher, in a process of the cluster ── supervises ──▶ workers
python -m launchpad, Detached ── status, stop, logs, … ──▶ RemoteLauncher
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, TextIO

from launchpad.errors import LaunchError, ProgramFailed
from launchpad.graph.picture import picture_of
from launchpad.launch.backends.backend import Backend
from launchpad.launch.output.printer import Output
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.rundir import control_server, record
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.launch.rundir.history import RunHistory
from launchpad.launch.rundir.record import WorkerStatus
from launchpad.launch.running import Running
from launchpad.telemetry.program_metrics import Metrics
from launchpad.telemetry.trace import Trace


class RemoteLauncher:
    """The launcher of one program. It prints to `stream` what a script would print; with None, nothing.

    `Detached` calls its methods by name. They may be called from any thread.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._running: Running | None = None
        self._record: dict[str, Any] = {}

    def begin(self, plan: LaunchPlan, backend: Backend, grace_s: float) -> dict[str, Any]:
        """Launch the program, and return the record of the run.

        Raises:
            LaunchError: the program could not be launched, and nothing is left running.
        """
        run = RunDirectory.create(plan.program)
        output = Output(run, [worker.name for worker in plan.workers], self._stream)
        self._running = Running.start(plan, backend, run, output, grace_s)
        self._record = record.left_behind(run, plan)
        return self._record

    def record(self) -> dict[str, Any]:
        """Return the record of the run; empty if no run was begun."""
        return self._record

    def status(self) -> list[WorkerStatus]:
        return self._begun().status()

    def metrics(self, timeout_s: float) -> Metrics:
        return self._begun().metrics(timeout_s)

    def history(self) -> RunHistory:
        return self._begun().history()

    def stop(self, at_once: bool = False) -> None:
        self._begun().ask_to_stop(at_once)

    def stacks(self, workers: Sequence[str]) -> dict[str, str]:
        return control_server.stacks_of(workers, self._begun().stacks)

    def ask_to_restart(self, worker: str) -> None:
        self._begun().ask_to_restart(worker, control_server.RESTARTED)

    def trace(self, seconds: float) -> Trace:
        return self._begun().trace(seconds)

    def picture(self) -> dict[str, Any]:
        """Return what `Picture.from_dict` draws. The run's record, which others have, lacks it."""
        return asdict(picture_of(self._begun().plan))

    def logs(self, worker: str, offset: int = 0) -> str:
        return self._begun().logs(worker)[offset:]

    def wait(self, timeout_s: float) -> bool:
        """Wait until the program has ended, or the time is up. Return True if it has ended."""
        try:
            self._begun().wait(timeout_s, raise_error=False)
        except TimeoutError:
            return False
        return True

    def failure(self) -> ProgramFailed | LaunchError | None:
        return self._begun().failure()

    def exit_status(self) -> int:
        return self._begun().exit_status()

    def _begun(self) -> Running:
        if self._running is None:
            raise LaunchError(f"no program was begun by the launcher in process {os.getpid()}")
        return self._running
