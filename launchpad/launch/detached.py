"""Detached programs, which run on without the script that launched them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from launchpad.courier.deadlines import check_timeout
from launchpad.errors import LaunchError
from launchpad.launch.rundir.history import RunHistory
from launchpad.launch.rundir.record import RunRecord, WorkerStatus
from launchpad.telemetry.program_metrics import Metrics
from launchpad.telemetry.trace import Trace

_POLL_S = 5.0
_TRACED_S = 60.0
"""Seconds to wait for a trace after the end of the recording."""


class Detached:
    """A program that outlives its script: what `lp.launch(program, "ray", detach=True)` returns.

    Example:
        detached = lp.launch(program, "ray", detach=True)
        print(detached.run_id)                    # python -m launchpad logs RUN_ID learner

    Methods may be called from any thread. They raise LaunchError if the program can no longer be reached,
    because it ended a while ago, or because its launcher was killed, and with it all workers.

    Args:
        record: The record of the run.
        ask: Calls a method of the run's `RemoteLauncher`, by name.

    Attributes:
        run_id: The name of this run.
    """

    def __init__(self, record: RunRecord, ask: Callable[..., Any]) -> None:
        self.record = record
        self.run_id = record.run_id
        self._ask = ask

    def status(self) -> list[WorkerStatus]:
        """Return a row for each worker."""
        return list(self._ask("status"))

    def metrics(self, timeout_s: float = 5.0) -> Metrics:
        """Return the numbers of the program, as `Running.metrics` does."""
        metrics: Metrics = self._ask("metrics", timeout_s)
        return metrics

    def history(self) -> RunHistory:
        """Return the history of the run so far."""
        history: RunHistory = self._ask("history")
        return history

    def wait(self, timeout_s: float | None = None) -> None:
        """Block until the program has ended.

        Raises:
            ProgramFailed: a worker failed; the error's text is the whole report.
            TimeoutError: the program did not end in time.
        """
        check_timeout(timeout_s)
        deadline = time.monotonic() + (float("inf") if timeout_s is None else timeout_s)
        while not self._ask("wait", max(0.0, min(_POLL_S, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                raise TimeoutError(f"{self.run_id} still runs after {timeout_s} s")
        failure = self._ask("failure")
        if failure is not None:
            raise failure

    def has_ended(self) -> bool:
        """Return True if the program has ended, well or badly."""
        return bool(self._ask("wait", 0.0))

    def ask_to_stop(self, at_once: bool = False) -> None:
        """Ask the program to stop, without waiting."""
        self._ask("stop", at_once)

    def stop(self, *, at_once: bool = False) -> None:
        """Stop the program, and block until it has ended."""
        self.ask_to_stop(at_once)
        while not self._ask("wait", _POLL_S):
            continue

    def ask_to_restart(self, worker: str) -> None:
        """Ask for a worker to be restarted, as `Running.restart` does, but without waiting.

        Raises:
            KeyError: there is no such worker.
            NotRunningError: the program is ending, or has ended.
        """
        self._ask("ask_to_restart", worker)

    def trace(self, seconds: float = 5.0) -> Trace:
        """Record what the workers do for some seconds, as `Running.trace` does."""
        trace: Trace = self._ask("trace", seconds, timeout_s=seconds + _TRACED_S)
        return trace

    def picture(self) -> dict[str, Any]:
        """Return the program as plain data, for `python -m launchpad graph`."""
        return dict(self._ask("picture"))

    def logs(self, worker: str, offset: int = 0) -> str:
        """Return what a worker has printed so far, in all attempts, from the character at `offset` on."""
        return str(self._ask("logs", worker, offset))

    def stacks(self, workers: list[str]) -> dict[str, str]:
        """Return, by worker, what the worker's threads are doing."""
        return dict(self._ask("stacks", workers))

    def __repr__(self) -> str:
        return f"<Detached {self.run_id} on {self.record.launch_type}>"


def refusal(launch_type: str) -> LaunchError:
    """Return the error of a backend whose workers cannot outlive the script."""
    return LaunchError(
        f"launch type {launch_type!r} ends with its script, so detach=True means nothing to it;"
        " use 'ray' or 'kubernetes', on a cluster that outlives the script"
    )
