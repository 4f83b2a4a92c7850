"""Processes: every worker is a process of this host.

    launcher (here) ── commands ──▶ forkserver ── fork ──▶ workers
                    ◀── reports ───
           └─────── starts ───────▶ subreaper, the forkserver's parent, which ends what that leaves

The launcher has one thread per launch, which reads what the forkserver sends; `forked_workers` makes reports
of it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from launchpad import outcome
from launchpad.address import COURIER
from launchpad.errors import LaunchError
from launchpad.events import Event, WorkerNote
from launchpad.launch.backends.backend import Workers
from launchpad.launch.backends.local_host import LocalBackend, unused_gpus
from launchpad.launch.backends.processes import exit_status, messages, os_process, worker_specs
from launchpad.launch.backends.processes.exit_status import ProcessAttempt
from launchpad.launch.backends.processes.forked_workers import ForkedWorkers
from launchpad.launch.backends.processes.messages import SpecsReady
from launchpad.launch.logs.log_files import last_lines
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.planning.interpreter import HASH_SEED, InterpreterSettings
from launchpad.launch.rundir.directory import RunDirectory, socket_name
from launchpad.outcome import Outcome

_FORKSERVER_LOG = "forkserver.log"
_CLOSE_S = 1.0


class Processes(LocalBackend):
    """`local_mp`: for programs that compute, or whose workers may crash."""

    binds_cpus = True

    def endpoint(self, address: str, kind: str) -> str:
        return f"unix:{{run}}/{socket_name(address)}" if kind == COURIER else "localhost:{port}"

    def create_workers(
        self, plan: LaunchPlan, run: RunDirectory, report: Callable[[Event], None]
    ) -> Workers:
        if text := unused_gpus(plan.workers):
            report(WorkerNote(plan.workers[0].name, text))
        return start_forkserver(plan, run, report)


class TestProcesses(Processes):
    """`test_mp`: the same, for unit tests."""

    __test__ = False  # no test case, whatever pytest makes of the name
    is_test = True


class ProcessWorkers(ForkedWorkers):
    """The processes of one launch, whose forkserver is a process of its own.

    Args:
        subreaper: The forkserver's parent; it ends as that does, when nothing of the launch is left.
        control: The connection to the forkserver, which is also its lifeline.
        log: What the subreaper and the forkserver print.
        preload: What the forkserver imports before it forks.
    """

    def __init__(
        self,
        subreaper: subprocess.Popen[bytes],
        control: socket.socket,
        report: Callable[[Any], None],
        stacks: Callable[[str], Path],
        log: Path,
        preload: Sequence[str] = (),
    ):
        super().__init__(self._send, report, stacks)
        self._subreaper, self._control, self._log = subreaper, control, log
        self._preload = preload
        self._has_forked = self._is_given_up = False
        self._writing = threading.Lock()
        self._reader = threading.Thread(target=self._read, name="launchpad-processes", daemon=True)
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
        for message in messages.receive(self._control.fileno()):
            self.on(message)
        self._subreaper.wait()
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
    **overrides: Any,
) -> ProcessWorkers:
    """Starts the forkserver of a plan's workers, and does not wait until it runs.

    Args:
        overrides: Fields of the `LaunchSpec` that come from a launcher on another host.

    Raises:
        LaunchError: it could not be started.
    """
    if not sys.executable:  # Python is part of another program
        raise LaunchError(
            f"the workers' forkserver could not be started: sys.executable is {sys.executable!r}; set it to"
            " the path of a Python interpreter, or launch with local_mt"
        )
    interpreter = overrides.setdefault("interpreter", InterpreterSettings.here())
    try:
        with (
            open(worker_specs.create(), "wb") as file,
            open(run.logs / _FORKSERVER_LOG, "ab") as log,
            contextlib.ExitStack() as undo,
        ):
            ours, theirs = map(undo.enter_context, socket.socketpair())
            with theirs:
                inherited = theirs.fileno(), file.fileno()
                process = subprocess.Popen(
                    os_process.python_command(
                        "subreaper:main",
                        *inherited,
                        os.getpid(),
                        str(run.runtime),
                        flags=interpreter.flags,
                    ),
                    env={**os.environ, HASH_SEED: interpreter.hash_seed},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(*inherited, *run.claimed()),
                    start_new_session=True,
                )
            undo.callback(process.wait)
            undo.callback(ours.close)  # so that it ends
            own_log = Path(log.name)
            workers = ProcessWorkers(process, ours, report, run.stacks, own_log, plan.preload)
            undo.callback(workers.close)
            # While the interpreter starts.
            workers.send(SpecsReady(worker_specs.write(file.fileno(), plan, run, **overrides)))
            undo.pop_all()
            return workers
    except (OSError, RuntimeError) as error:  # RuntimeError: there can be no new thread
        why = "; ".join(filter(None, (str(error), exit_status.limit_behind(error))))
        raise LaunchError(f"the workers' forkserver could not be started: {why}") from error
