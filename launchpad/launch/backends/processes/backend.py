"""Processes: every worker is a process of this host.

    launcher (here) ── commands ──▶ host ── fork ──▶ workers
                    ◀── reports ───
           └─────── starts ───────▶ keeper, the host's parent, which lives to end what that leaves

The launcher has one thread per launch, which reads what the host reports; `forked_workers` says what of it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from launchpad import outcome
from launchpad.address import COURIER
from launchpad.errors import LaunchError
from launchpad.events import Event
from launchpad.launch.backends import local_host
from launchpad.launch.backends.backend import Backend, Workers
from launchpad.launch.backends.processes import exit_status, interpreter, messages, worker_specs
from launchpad.launch.backends.processes.exit_status import ProcessAttempt
from launchpad.launch.backends.processes.forked_workers import ForkedWorkers
from launchpad.launch.backends.processes.messages import SpecsReady
from launchpad.launch.plan import LaunchPlan, WorkerPlan
from launchpad.launch.rundir.directory import RunDirectory, socket_name
from launchpad.outcome import Outcome

_CLOSE_S = 1.0


class Processes(Backend):
    """`local_mp`: what a program wants that computes, or whose workers may die."""

    def endpoint(self, address: str, kind: str) -> str:
        """A socket in the run's own directory, or a free port."""
        return f"unix:{{run}}/{socket_name(address)}" if kind == COURIER else "localhost:{port}"

    def assign(self, workers: Sequence[WorkerPlan]) -> Sequence[WorkerPlan]:
        """GPUs and CPUs of this host."""
        return local_host.assign(workers, binds_cpus=True)

    def claim(self, plan: LaunchPlan, run: RunDirectory) -> LaunchPlan:
        """For the keeper, the host and the workers, each of which keeps the claim alive."""
        return local_host.claim(plan, run)

    def start(
        self, plan: LaunchPlan, run: RunDirectory, report: Callable[[Event], None]
    ) -> Workers:
        """Starts the host, and does not wait until it is there."""
        return start_forkserver(plan, run, report)


class TestProcesses(Processes):
    """`test_mp`: the same, for unit tests."""

    __test__ = False  # no test case, whatever pytest makes of the name
    is_test = True


class ProcessWorkers(ForkedWorkers):
    """The processes of one launch, whose host is a process of its own.

    Args:
        subreaper: The host's parent; it ends as the host does, when nothing of the launch is left.
        control: The connection to the host, which is also its lifeline.
        report: Where reports go, from the reading thread or from a caller's.
        stacks: The file into which a worker writes its stacks.
    """

    def __init__(
        self,
        subreaper: subprocess.Popen[bytes],
        control: socket.socket,
        report: Callable[[Any], None],
        stacks: Callable[[str], Path],
    ):
        super().__init__(self._send, report, stacks)
        self._subreaper, self._control = subreaper, control
        self._writing = threading.Lock()
        self._reader = threading.Thread(target=self._read, name="launchpad-processes", daemon=True)
        try:
            self._reader.start()
        except RuntimeError:
            control.close()
            subreaper.wait()
            raise

    def close(self) -> None:
        """Ends the host, and with it what may still run."""
        super().close()
        for escalate in (self._subreaper.terminate, self._subreaper.kill):
            self._reader.join(_CLOSE_S)
            if self._reader.is_alive():
                escalate()
        self._reader.join(_CLOSE_S)
        self._control.close()

    def _send(self, message: Any) -> None:
        """Sends to the host; one that is dead is the reader's concern."""
        with self._writing, contextlib.suppress(OSError):
            self._control.sendall(messages.encode(message))

    def _read(self) -> None:
        for message in messages.receive(self._control.fileno()):
            self.on(message)
        self._subreaper.wait()
        self.on_lost(self._ending_with_the_host)

    def _ending_with_the_host(self, attempt: ProcessAttempt) -> Outcome:
        if attempt.killed:
            return attempt.outcome(outcome.STOPPED, "killed when the launch was closed")
        code = self._subreaper.returncode
        how = (
            f"was killed by {signal.Signals(-code).name}"
            if code < 0
            else f"exited with code {code}"
        )
        return attempt.outcome(
            outcome.LOST, f"the host of all workers {how}, so this one was killed"
        )


def start_forkserver(
    plan: LaunchPlan,
    run: RunDirectory,
    report: Callable[[Any], None],
    **overrides: Any,
) -> ProcessWorkers:
    """Starts the host of a plan's workers, and does not wait until it is there.

    Args:
        overrides: What the briefing says of a launcher on another host.

    Raises:
        LaunchError: it could not be started.
    """
    try:
        with open(worker_specs.create(), "wb") as file, open(run.logs / "host.log", "ab") as log:
            ours, theirs = socket.socketpair()
            try:
                with theirs:
                    process = _start_subreaper(theirs.fileno(), file.fileno(), log.fileno(), run)
                workers = ProcessWorkers(process, ours, report, run.stacks)
            except BaseException:
                ours.close()
                raise
            try:  # while it boots
                workers.send(SpecsReady(worker_specs.write(file.fileno(), plan, run, **overrides)))
            except BaseException:
                workers.close()
                raise
    except (OSError, RuntimeError) as error:  # RuntimeError: there can be no new thread
        why = f"{error}. {exit_status.limit_behind(error)}"
        raise LaunchError(f"the workers' host could not be started: {why}") from error
    return workers


def _start_subreaper(
    lifeline: int, file: int, log: int, run: RunDirectory
) -> subprocess.Popen[bytes]:
    """The keeper's process, booting."""
    return subprocess.Popen(
        interpreter.command("subreaper:main", lifeline, file, os.getpid(), str(run.runtime)),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        pass_fds=(lifeline, file, *run.claimed()),
        start_new_session=True,
    )
