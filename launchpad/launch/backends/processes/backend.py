"""Processes: every worker is a process of this host.

    launcher (here) ── commands ──▶ forkserver ── fork ──▶ workers
                    ◀── reports ───
           └─────── starts ───────▶ subreaper, the forkserver's parent, which ends what the forkserver leaves

The launcher has one thread per launch, which reads the forkserver's messages; `ForkedWorkers` turns them into
events. Each start of a worker is one `ProcessAttempt`. An attempt ends once, with the outcome that
`exit_status` derives from the worker's report and the kernel's exit status.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from launchpad import outcome
from launchpad.address import COURIER
from launchpad.courier import keyring
from launchpad.courier.own_threads import OwnThread
from launchpad.launch.backends.backend import Workers
from launchpad.launch.backends.launcher_info import KeyringEntry, LauncherInfo
from launchpad.launch.backends.local_backend import LocalBackend, unused_gpus
from launchpad.launch.backends.processes import (
    exit_status,
    forkserver_handle,
    messages,
    os_process,
    worker_specs,
)
from launchpad.launch.backends.processes.exit_status import ProcessAttempt
from launchpad.launch.backends.processes.forkserver_handle import ForkserverHandle
from launchpad.launch.backends.processes.messages import SpecsReady
from launchpad.launch.backends.processes.subreaper_server_handle import SubreaperServer
from launchpad.launch.logs.log_files import last_lines
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.rundir.directory import RunDirectory, socket_name
from launchpad.launch.worker.spec import WorkerSpec
from launchpad.outcome import Outcome
from launchpad.runtime.commands import AttachDebugger, Command, KillWorker, StartWorker
from launchpad.runtime.events import (
    Ended,
    Event,
    Exiting,
    ProcessStarted,
    Ready,
    Returned,
    WorkerNote,
)

_FORKSERVER_LOG = "forkserver.log"
_CLOSE_S = 1.0

_GARBLED = (
    "something in its process has written to a descriptor that it has not opened: launchpad's connection to"
    " the launcher"
)
_STACKS_S = 2.0
"""How long a worker may take to write its stacks."""

_POLL_S = 0.005
_UNCHANGED = 6
"""Seconds between two checks of a worker's stacks, which are complete after `_UNCHANGED` checks in a row that
find nothing new."""


class Processes(LocalBackend):
    """`local_mp`: for programs that compute, or whose workers may crash."""

    binds_cpus = True
    starts_with_all_payloads = True

    def endpoint(self, address: str, kind: str) -> str:
        return f"unix:{{run}}/{socket_name(address)}" if kind == COURIER else "localhost:{port}"

    def create_workers(
        self, plan: LaunchPlan, run: RunDirectory, report: Callable[[Event], None]
    ) -> Workers:
        text = unused_gpus(plan.workers)
        if text:
            report(WorkerNote(plan.workers[0].name, text))
        endpoints = plan.endpoints  # one dict, so that the index contains it only once
        specs = [
            WorkerSpec(
                plan=worker,
                program=plan.program,
                launch_type=plan.launch_type,
                endpoints=endpoints,
                state=run.state_places(worker.name, worker.group),
            )
            for worker in plan.workers
        ]
        keys = [(run.scope, keyring.find(run.scope), None)]
        workers = create_process_workers(plan, specs, run, report, keys, early=self.early)
        # The buffers are in the file of specs now, so the plan needs the script's arrays no longer.
        plan.release_buffers()
        return workers


class TestProcesses(Processes):
    """`test_mp`: the same as `local_mp`, for unit tests."""

    __test__ = False  # pytest would take it for a test case
    is_test = True


class ForkedWorkers(Workers):
    """The workers of one forkserver, which may be a separate process or this process.

    Args:
        send: Takes commands for the forkserver.
        report: Called with each event, in the thread that calls `on` or `execute`.
        stacks: Worker → the file into which it writes its stacks.
    """

    def __init__(
        self,
        send: Callable[[Any], None],
        report: Callable[[Any], None],
        stacks: Callable[[str], Path],
    ) -> None:
        self.send = send
        self._report = report
        self._stacks = stacks
        # Held while `_attempts` or `_lost` changes. `execute` and `on_lost` are called in different threads.
        # Without the lock, neither would end an attempt that starts just as the forkserver is lost.
        self._lock = threading.Lock()
        self._attempts: dict[str, ProcessAttempt] = {}
        self._lost: Callable[[ProcessAttempt], Outcome] | None = None

    def execute(self, command: Command) -> None:
        """Send a command to the forkserver. Record which attempt runs, and whether it was killed."""
        lost = None
        with self._lock:
            match command:
                case StartWorker(worker, number):
                    self._attempts[worker] = ProcessAttempt(worker, number)
                    lost = self._lost
                case KillWorker(worker) if worker in self._attempts:
                    self._attempts[worker].killed = True
        if lost is not None and isinstance(command, StartWorker):
            self._end(command.worker, lost)
        else:
            self.send(command)

    def attach(self, worker: str, path: str, token: bytes, thread: str) -> None:
        self.send(AttachDebugger(worker, path, token, thread))

    def stacks(self, worker: str) -> str:
        """Have faulthandler write the worker's stacks, even while it hangs in C code, and return them."""
        file = self._stacks(worker)
        # Measure this before the request, so that everything after it is the answer.
        begin = _size(file)
        size = begin
        self.send(messages.DumpStacks(worker))
        deadline = time.monotonic() + _STACKS_S
        unchanged = 0
        while unchanged < _UNCHANGED and time.monotonic() < deadline:
            time.sleep(_POLL_S)
            before = size
            size = _size(file)
            unchanged = unchanged + 1 if size == before and size > begin else 0
        if size <= begin:
            return "(no answer: it has just begun, has ended, or is stuck in the kernel)\n"
        with file.open("rb") as stream:
            stream.seek(begin)
            return stream.read().decode(errors="replace")

    def close(self) -> None:
        """Have the forkserver end all processes that may still run, and then itself."""
        with self._lock:
            for attempt in self._attempts.values():
                attempt.killed = True
        self.send(messages.EndLaunch())

    def on(self, message: Any) -> None:
        if isinstance(message, ProcessStarted):
            attempt = self._attempts[message.worker]
            attempt.pid = message.pid
            attempt.phase = "import"
            self._report(message)
        elif isinstance(message, Ended):
            # The worker could not get a process.
            end = message.outcome
            self._end(end.worker, lambda attempt: end)
        elif isinstance(message, messages.ChildExited):
            child_exit = message
            self._end(message.worker, lambda attempt: exit_status.ending(attempt, child_exit))
        elif isinstance(message, messages.Garbled):
            self._on_garbled(self._attempts[message.worker])
        elif isinstance(message, messages.FromWorker):
            attempt = self._attempts[message.worker]
            try:
                report = pickle.loads(message.frame)
            except Exception:
                # Something else has written into the middle of a message.
                self._on_garbled(attempt)
                return
            if isinstance(report, Ended):
                attempt.reported = report.outcome
                self._report(Exiting(attempt.worker, attempt.number))
            elif isinstance(report, messages.Awaits):
                attempt.awaits = report.what
            elif isinstance(report, Exiting):
                attempt.awaits = report.awaits
                self._report(report)
            elif isinstance(report, messages.ReturnedInFile):
                self._report(_read_result(report))
            elif isinstance(report, messages.Phase):
                attempt.phase = report.phase
            else:
                attempt.phase = "run" if isinstance(report, Ready) else attempt.phase
                self._report(report)

    def _on_garbled(self, attempt: ProcessAttempt) -> None:
        """End a worker that has written to launchpad's descriptor: its reports can't be read any more."""
        if attempt.reported is not None:
            return
        attempt.reported = attempt.outcome(outcome.FAILED, _GARBLED)
        self.send(KillWorker(attempt.worker, at_once=True))

    def on_lost(self, lost: Callable[[ProcessAttempt], Outcome]) -> None:
        """End all attempts, and any that start later, because the forkserver is gone."""
        with self._lock:
            self._lost = lost
            workers = list(self._attempts)
        for worker in workers:
            self._end(worker, lost)

    def _end(self, worker: str, outcome_of: Callable[[ProcessAttempt], Outcome]) -> None:
        """Report the end of an attempt, unless it was reported already."""
        with self._lock:
            attempt = self._attempts.pop(worker, None)
        if attempt is not None:
            self._report(Ended(outcome_of(attempt)))


class ProcessWorkers(ForkedWorkers):
    """The processes of one launch, whose forkserver is a separate process.

    Args:
        process: The forkserver, which ends when nothing of the launch is left.
        log: The file for what the subreaper and the forkserver print.
        preload: The modules that the forkserver imports before it forks.
    """

    def __init__(
        self,
        process: ForkserverHandle,
        report: Callable[[Any], None],
        stacks: Callable[[str], Path],
        log: Path,
        preload: Sequence[str] = (),
    ):
        super().__init__(self._send, report, stacks)
        self._process = process
        self._log = log
        self._subreaper = process.subreaper
        self._control = process.control
        self._preload = preload
        self._has_forked = False
        self._is_given_up = False
        # Held while a message is sent, because several threads send, and their messages must not mix.
        self._writing = threading.Lock()
        self._reader = OwnThread(target=self._read, name="launchpad-processes")
        self._reader.start()

    def execute(self, command: Command) -> None:
        """Execute a command. To kill a worker while the forkserver still imports modules, end the forkserver.

        While it imports, the forkserver reads no commands.
        """
        super().execute(command)
        if isinstance(command, KillWorker) and self._preload and not self._has_forked:
            self._is_given_up = True
            self._subreaper.send_signal(os_process.END_FORKSERVER)

    def on(self, message: Any) -> None:
        self._has_forked = True
        super().on(message)

    def kill_forkserver(self) -> None:
        """Have the subreaper kill the forkserver, and all that it leaves. Callable from any thread."""
        self._subreaper.send_signal(os_process.END_FORKSERVER)

    def close(self) -> None:
        """End the forkserver, and with it all processes that may still run."""
        super().close()
        for number in (os_process.END_FORKSERVER, signal.SIGKILL):
            self._reader.join(_CLOSE_S)
            if self._reader.is_alive():
                self._subreaper.send_signal(number)
        self._reader.join(_CLOSE_S)
        self._control.close()

    def _send(self, message: Any) -> None:
        """Send a message to the forkserver. If it is dead, the reading thread notices."""
        with self._writing, contextlib.suppress(OSError):
            self._control.sendall(messages.encode(message))

    def _read(self) -> None:
        try:
            for message in messages.receive(self._control.fileno()):
                self.on(message)
        except Exception:
            # If only this thread ended, and not the forkserver, the end of a worker would no longer be
            # noticed.
            traceback.print_exc()
            self._subreaper.send_signal(os_process.END_FORKSERVER)
        self._subreaper.wait()
        self._process.keep_output(self._log)
        self.on_lost(self._lost_outcome)

    def _lost_outcome(self, attempt: ProcessAttempt) -> Outcome:
        if attempt.killed:
            return attempt.outcome(outcome.STOPPED, "killed when the launch was closed")
        if self._is_given_up:
            modules = f"preload={list(self._preload)}, which took too long"
            cause = f"the forkserver of all workers was ended while it imported {modules}"
            return attempt.outcome(outcome.LOST, cause)
        code = self._subreaper.returncode
        how = f"exited with code {code}"
        if code < 0:
            how = f"was killed by {os_process.signal_name(-code)}"
        lost = attempt.outcome(
            outcome.LOST, f"the forkserver of all workers {how}, so this one was killed"
        )
        # The reason is in the forkserver's log. A worker may not even have a log.
        why = last_lines(self._log)
        return replace(lost, last_lines=why, log_path=str(self._log)) if why else lost


def create_process_workers(
    plan: LaunchPlan,
    workers: Sequence[WorkerSpec],
    run: RunDirectory,
    report: Callable[[Any], None],
    keys: Sequence[KeyringEntry],
    *,
    launcher: LauncherInfo | None = None,
    early: ForkserverHandle | None = None,
    server: SubreaperServer | None = None,
) -> ProcessWorkers:
    """Start the forkserver of a plan's workers, and don't wait until it runs.

    Args:
        workers: The specs of the plan's workers.
        keys: The keys to the addresses of the run.
        launcher: The launching script, if it is another process than this one.
        early: A forkserver that was started before there was a plan. It isn't used if the run holds
            descriptors that all processes must inherit.
        server: The server that forks the subreaper, if there is one.

    Raises:
        LaunchError: the forkserver could not be started.
    """
    inherited = [*run.claimed(), *plan.buffer_files]
    if early is not None and not inherited:
        process = early
    else:
        interpreter = None if launcher is None else launcher.interpreter
        process = forkserver_handle.start(interpreter, inherited, server, plan.modules)
    process.is_used = True
    try:
        with contextlib.ExitStack() as undo:
            undo.callback(process.end)
            log = run.logs / _FORKSERVER_LOG
            process_workers = ProcessWorkers(process, report, run.stacks, log, plan.preload)
            undo.pop_all()
            undo.callback(process_workers.close)
            if launcher is None:
                launcher = LauncherInfo.here(process.interpreter)
            # The forkserver's interpreter starts while this writes the specs.
            with process.specs as file:
                index_length = worker_specs.write(file.fileno(), plan, workers, run, launcher, keys)
            process_workers.send(SpecsReady(index_length, str(log)))
            undo.pop_all()
            return process_workers
    except (OSError, RuntimeError) as error:  # RuntimeError: no new thread can be started
        raise forkserver_handle.not_started(error) from error


def _read_result(message: messages.ReturnedInFile) -> Returned:
    """Read the result that a worker has written into a file, and delete the file."""
    try:
        with open(message.path, "rb") as file:
            os.unlink(message.path)
            result: Returned = pickle.load(file)
    except Exception as error:  # MemoryError, too
        why = f"what {message.worker} returned could not be read: {type(error).__name__}: {error}"
        return Returned(message.worker, message.attempt, error=why)
    return result


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
