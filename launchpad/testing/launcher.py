"""Launcher: a tool that launches the programs of a test, limits their time, and stops them at its end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from typing import Any

from launchpad.launch.launch import launch
from launchpad.launch.rundir.record import WorkerStatus
from launchpad.launch.running import Running
from launchpad.outcome import FAILED, LOST, STOPPED, SUCCEEDED
from launchpad.program import Program
from launchpad.resources import PythonProcess, Resources
from launchpad.restart_policy import RestartPolicy

_SHOWN_WORKERS = 20
_SHOWN_LINES = 20
_SHOWN_STACKS = 5
_ENDED = (SUCCEEDED, FAILED, STOPPED, LOST)


class Launcher:
    """A launcher for one test. It gives each program a time limit, and stops all programs at the test's end.

    A test gets its launcher from the pytest fixture `lp_launch`.

    Example:
        def test_every_player_plays(lp_launch: lp.testing.Launcher) -> None:
            running = lp_launch(make_program(players=2), timeout_s=30)
            running.wait()
            assert "player 2 of 2" in running.logs("player-1")

    Attributes:
        launch_type: The launch type of the launcher's programs.
    """

    def __init__(self, launch_type: str) -> None:
        self.launch_type = launch_type
        self._programs: list[_TimedProgram] = []

    def __call__(
        self,
        program: Program,
        timeout_s: float = 60.0,
        local_resources: Mapping[str, PythonProcess] | None = None,
        *,
        restart: RestartPolicy | Mapping[str, RestartPolicy] | None = None,
        resources: Mapping[str, Resources] | None = None,
        **options: Any,
    ) -> Running:
        """Launch a program and return at once.

        Args:
            program: The program to launch.
            timeout_s: Seconds after which the program is stopped if it still runs. In this case, a `wait()`
                for the program returns, and `close` raises TimeoutError.
            local_resources, restart, resources, options: As for `lp.launch`.
        """
        running: Running = launch(
            program,
            self.launch_type,
            local_resources=local_resources,
            restart=restart,
            resources=resources,
            **options,
        )
        self._programs.append(_TimedProgram(running, timeout_s))
        return running

    def report(self) -> list[tuple[str, str]]:
        """Return a title and a text for each program: its workers and the last lines of their logs."""
        return [(repr(program.running), program.report()) for program in self._programs]

    def close(self) -> None:
        """Stop the programs, the last one first.

        Raises:
            ProgramFailed: A program failed, and no `wait()` has raised this error.
            TimeoutError: A program was stopped because its time was up.
            ExceptionGroup: There are several of these errors.
        """
        # pytest leaves these lines out of the traceback.
        __tracebackhide__ = True
        errors: list[Exception] = []
        for program in reversed(self._programs):
            try:
                program.end()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0] if len(errors) == 1 else ExceptionGroup("several programs", errors)


class _TimedProgram:
    """A program, and the thread that stops it when its time is up."""

    def __init__(self, running: Running, timeout_s: float) -> None:
        self.running = running
        self._timeout_s = timeout_s
        self._overdue = ""
        self._stacks = ""
        self._timer = threading.Timer(timeout_s, self._stop)
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> None:
        """Stop the program. If it failed, raise the error, unless a `wait()` has raised it already."""
        __tracebackhide__ = True
        self._timer.cancel()
        self._timer.join()
        if self._overdue:
            raise TimeoutError(self._overdue)
        self.running.stop_and_wait()

    def report(self) -> str:
        rows = sorted(self.running.status(), key=lambda row: row.state not in (FAILED, LOST))
        lines = [self._overdue] if self._overdue else []
        for row in rows[:_SHOWN_WORKERS]:
            lines += [_described(row), *self._last_lines(row.worker)]
        if len(rows) > _SHOWN_WORKERS:
            lines.append(f"… and {len(rows) - _SHOWN_WORKERS} more workers")
        lines.append(f"logs: {self.running.log_directory}")
        return "\n".join(lines) + self._stacks

    def _last_lines(self, worker: str) -> list[str]:
        try:
            lines = self.running.logs(worker).splitlines()
        except (KeyError, OSError) as error:
            # A `thread_worker` has no log of its own.
            return [f"    no log: {error}"]
        return [f"    {line}" for line in lines[-_SHOWN_LINES:]]

    def _stop(self) -> None:
        """Stop the program if it still runs. The timer's thread calls this."""
        running_workers = [row.worker for row in self.running.status() if row.state not in _ENDED]
        if not running_workers:
            return
        stacks = []
        for worker in running_workers[:_SHOWN_STACKS]:
            # The worker may end at any moment.
            with contextlib.suppress(Exception):
                stacks.append(f"\n=== where {worker} was:\n{self.running.stacks(worker)}")
        self._stacks = "".join(stacks)
        self._overdue = (
            f"program {self.running.plan.program!r} still ran {self._timeout_s} s after its launch, and was"
            f" stopped: {', '.join(running_workers)}. Give lp_launch(program, timeout_s=…) if it needs more."
        )
        self.running.stop("its time limit was over")


def _described(row: WorkerStatus) -> str:
    attempt = f" (attempt {row.attempt})" if row.attempt > 1 else ""
    return f"{row.worker} {row.state}{attempt}" + (f": {row.cause}" if row.cause else "")
