"""Processes: every worker is a process of this host.

    launcher (here) ── commands ──▶ forkserver ── fork ──▶ workers
                    ◀── reports ───
           └─────── starts ───────▶ subreaper, the forkserver's parent, which ends what that leaves

The launcher has one thread per launch, which reads what the forkserver sends; `forked_workers` makes reports
of it.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from launchpad import outcome
from launchpad.address import COURIER
from launchpad.courier.own_threads import OwnThread
from launchpad.launch.backends.backend import Workers
from launchpad.launch.backends.local_host import LocalBackend, unused_gpus
from launchpad.launch.backends.processes import forkserver_process, messages, worker_specs
from launchpad.launch.backends.processes.exit_status import ProcessAttempt
from launchpad.launch.backends.processes.forked_workers import ForkedWorkers
from launchpad.launch.backends.processes.forkserver_process import ForkserverProcess
from launchpad.launch.backends.processes.messages import SpecsReady
from launchpad.launch.logs.log_files import last_lines
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.rundir.directory import RunDirectory, socket_name
from launchpad.outcome import Outcome
from launchpad.runtime.events import Event, WorkerNote

_FORKSERVER_LOG = "forkserver.log"
_CLOSE_S = 1.0


class Processes(LocalBackend):
    """`local_mp`: for programs that compute, or whose workers may crash."""

    binds_cpus = True
    starts_with_all_payloads = True

    def endpoint(self, address: str, kind: str) -> str:
        return f"unix:{{run}}/{socket_name(address)}" if kind == COURIER else "localhost:{port}"

    def create_workers(
        self, plan: LaunchPlan, run: RunDirectory, report: Callable[[Event], None]
    ) -> Workers:
        if text := unused_gpus(plan.workers):
            report(WorkerNote(plan.workers[0].name, text))
        workers = start_forkserver(plan, run, report, self.early)
        plan.release_buffers()  # it has written them: the arrays are the script's alone again
        return workers


class TestProcesses(Processes):
    """`test_mp`: the same, for unit tests."""

    __test__ = False  # no test case, whatever pytest makes of the name
    is_test = True


class ProcessWorkers(ForkedWorkers):
    """The processes of one launch, whose forkserver is a process of its own.

    Args:
        process: The forkserver, which ends when nothing of the launch is left.
        log: What the subreaper and the forkserver print.
        preload: What the forkserver imports before it forks.
    """

    def __init__(
        self,
        process: ForkserverProcess,
        report: Callable[[Any], None],
        stacks: Callable[[str], Path],
        log: Path,
        preload: Sequence[str] = (),
    ):
        super().__init__(self._send, report, stacks)
        self._process, self._log = process, log
        self._subreaper, self._control = process.subreaper, process.control
        self._preload = preload
        self._has_forked = self._is_given_up = False
        self._writing = threading.Lock()
        self._reader = OwnThread(target=self._read, name="launchpad-processes")
        self._reader.start()

    def kill(self, worker: str) -> None:
        """As others do; where the forkserver still imports, and so reads no commands, it is ended itself."""
        super().kill(worker)
        if self._preload and not self._has_forked:
            self._is_given_up = True
            self._subreaper.terminate()

    def on(self, message: Any) -> None:
        self._has_forked = True
        super().on(message)

    def close(self) -> None:
        """Ends the forkserver, and with it what may still run."""
        super().close()
        for escalate in (self._subreaper.terminate, self._subreaper.kill):
            self._reader.join(_CLOSE_S)
            if self._reader.is_alive():
                escalate()
        self._reader.join(_CLOSE_S)
        self._control.close()

    def _send(self, message: Any) -> None:
        """Sends to the forkserver; that it is dead is noticed by the reading thread."""
        with self._writing, contextlib.suppress(OSError):
            self._control.sendall(messages.encode(message))

    def _read(self) -> None:
        try:
            for message in messages.receive(self._control.fileno()):
                self.on(message)
        except Exception:
            # Where this thread ends and the forkserver does not, no end of a worker is noticed any more.
            traceback.print_exc()
            self._subreaper.terminate()
        self._subreaper.wait()
        self._process.keep_output(self._log)
        self.on_lost(self._lost_outcome)

    def _lost_outcome(self, attempt: ProcessAttempt) -> Outcome:
        if attempt.killed:
            return attempt.outcome(outcome.STOPPED, "killed when the launch was closed")
        if self._is_given_up:
            what = f"preload={list(self._preload)}, which took too long"
            cause = f"the forkserver of all workers was ended while it imported {what}"
            return attempt.outcome(outcome.LOST, cause)
        code = self._subreaper.returncode
        how = (
            f"was killed by {signal.Signals(-code).name}"
            if code < 0
            else f"exited with code {code}"
        )
        lost = attempt.outcome(
            outcome.LOST, f"the forkserver of all workers {how}, so this one was killed"
        )
        why = last_lines(self._log)  # then not in the worker's log, which there may not even be
        return replace(lost, last_lines=why, log_path=str(self._log)) if why else lost


def start_forkserver(
    plan: LaunchPlan,
    run: RunDirectory,
    report: Callable[[Any], None],
    early: ForkserverProcess | None = None,
    **overrides: Any,
) -> ProcessWorkers:
    """Starts the forkserver of a plan's workers, and does not wait until it runs.

    Args:
        early: One that has been started before there was a plan; it is not used where the run holds what its
            processes have to inherit.
        overrides: Fields of the `LaunchSpec` that come from a launcher on another host.

    Raises:
        LaunchError: it could not be started.
    """
    inherited = [*run.claimed(), *plan.buffer_files]
    if early is not None and not inherited:
        process = early
    else:
        process = forkserver_process.start(overrides.get("interpreter"), inherited)
    process.is_used = True
    overrides.setdefault("interpreter", process.interpreter)
    try:
        with contextlib.ExitStack() as undo:
            undo.callback(process.end)
            log = run.logs / _FORKSERVER_LOG
            workers = ProcessWorkers(process, report, run.stacks, log, plan.preload)
            undo.pop_all()
            undo.callback(workers.close)
            with process.specs as file:  # while the interpreter starts
                index_length = worker_specs.write(file.fileno(), plan, run, **overrides)
            workers.send(SpecsReady(index_length, str(log)))
            undo.pop_all()
            return workers
    except (OSError, RuntimeError) as error:  # RuntimeError: there can be no new thread
        raise forkserver_process.not_started(error) from error
