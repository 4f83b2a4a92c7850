"""Processes: every worker is a process of this host.

    launcher (here) ── commands ──▶ host ── fork ──▶ workers
                    ◀── reports ───
           └─────── starts ───────▶ keeper, the host's parent, which lives to end what that leaves

The launcher has one thread per launch, which reads what the host reports. Each start of a worker is one
`Attempt`; it ends once, with what `endings` makes of the worker's word and the kernel's.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from launchpad import outcome
from launchpad.address import COURIER
from launchpad.errors import LaunchError
from launchpad.launch.backend import Backend, Born, Ended, Ready, Report, Workers
from launchpad.launch.backends import one_host
from launchpad.launch.backends.processes import (
    briefing,
    endings,
    interpreter,
    keeper,
    messages,
    stacks,
)
from launchpad.launch.backends.processes.briefing import Abroad
from launchpad.launch.backends.processes.clone import Clone
from launchpad.launch.backends.processes.endings import Attempt
from launchpad.launch.backends.processes.messages import (
    Ask,
    Bye,
    Dump,
    Forked,
    Gone,
    Hello,
    Kill,
    NotForked,
    Over,
    Phase,
    Placed,
    Said,
    Start,
)
from launchpad.launch.plan import LaunchPlan, WorkerPlan
from launchpad.launch.run_directory import RunDirectory, socket_name
from launchpad.outcome import Outcome

_CLOSE_S = 1.0


class Processes(Backend):
    """`local_mp`: what a program wants that computes, or whose workers may die."""

    def endpoint(self, address: str, kind: str) -> str:
        """A socket in the run's own directory, or a free port."""
        return f"unix:{{run}}/{socket_name(address)}" if kind == COURIER else "localhost:{port}"

    def assign(self, workers: Sequence[WorkerPlan]) -> Sequence[WorkerPlan]:
        """GPUs and CPUs of this host."""
        return one_host.assign(workers, binds_cpus=True)

    def claim(self, plan: LaunchPlan, run: RunDirectory) -> LaunchPlan:
        """For the keeper, the host and the workers, each of which keeps the claim alive."""
        return one_host.claim(plan, run)

    def start(
        self, plan: LaunchPlan, run: RunDirectory, report: Callable[[Report], None]
    ) -> Workers:
        """Starts the host, and does not wait until it is there."""
        return start_host(plan, run, report)


class TestProcesses(Processes):
    """`test_mp`: the same, for unit tests."""

    __test__ = False  # no test case, whatever pytest makes of the name
    is_test = True


class ProcessWorkers(Workers):
    """The processes of one launch.

    Args:
      keeper: The host's parent; it ends as the host does, when nothing of the launch is left.
      control: The connection to the host, which is also its lifeline.
      report: Where reports go, from the reading thread or from a caller's.
      stacks: The file into which a worker writes its stacks.
    """

    def __init__(
        self,
        keeper: subprocess.Popen[bytes] | Clone,
        control: socket.socket,
        report: Callable[[Any], None],
        stacks: Callable[[str], Path],
    ):
        self._stacks = stacks
        self._keeper, self._control, self._report = keeper, control, report
        self._lock = threading.Lock()
        self._attempts: dict[str, Attempt] = {}
        self._is_lost = self._is_hurried = False
        self._on: dict[type, Callable[[Any], None]] = {
            Forked: self._on_forked,
            NotForked: self._on_not_forked,
            Said: self._on_said,
            Gone: self._on_gone,
        }
        self._reader = threading.Thread(target=self._read, name="launchpad-processes", daemon=True)
        try:
            self._reader.start()
        except RuntimeError:
            control.close()
            keeper.wait()
            raise

    def start(self, worker: str, attempt: int) -> None:
        """Has it forked."""
        with self._lock:
            self._attempts[worker] = Attempt(worker, attempt)
            is_lost = self._is_lost
        if is_lost:
            self._end_lost(worker)
        else:
            self.send(Start(worker, attempt))

    def ask(self, worker: str, *, restarts: bool = False) -> None:
        """Tells it."""
        self.send(Ask(worker, restarts))

    def kill(self, worker: str) -> None:
        """Kills it and its process group, after it had a moment to write its stacks to its log."""
        with self._lock:
            if worker in self._attempts:
                self._attempts[worker].killed = True
        self.send(Kill(worker, self._is_hurried))

    def hurry(self) -> None:
        """For all kills to come."""
        self._is_hurried = True

    def tell_gone(self, worker: str, why: str) -> None:
        """Tells all."""
        self.send(Over(worker, why))

    def place(self, places: Mapping[str, str]) -> None:
        """Tells all where addresses are now."""
        self.send(Placed(places))

    def stacks(self, worker: str) -> str:
        """What faulthandler writes in its process, even when that hangs in C code."""
        return stacks.shown(self._stacks(worker), lambda: self.send(Dump(worker)))

    def close(self) -> None:
        """Ends the host, and with it what may still run."""
        with self._lock:
            for attempt in self._attempts.values():
                attempt.killed = True
        self.send(Bye())
        for insist in (self._keeper.terminate, self._keeper.kill):
            self._reader.join(_CLOSE_S)
            if self._reader.is_alive():
                insist()
        self._reader.join(_CLOSE_S)
        self._control.close()

    def send(self, message: Any) -> None:
        """Sends to the host; one that is dead is the reader's concern."""
        with self._lock:
            try:
                self._control.sendall(messages.encode(message))
            except OSError:
                return

    # The reading thread.

    def _read(self) -> None:
        for message in messages.receive(self._control.fileno()):
            self._on[type(message)](message)
        self._end_host()

    def _on_forked(self, forked: Forked) -> None:
        attempt = self._attempts[forked.worker]
        attempt.pid, attempt.phase = forked.pid, "import"
        self._report(Born(forked.worker, attempt.number, forked.pid))

    def _on_not_forked(self, failed: NotForked) -> None:
        self._end(failed.worker, lambda attempt: endings.not_started(attempt, failed.error))

    def _on_said(self, said: Said) -> None:
        attempt = self._attempts[said.worker]
        message = pickle.loads(said.frame)
        if isinstance(message, Outcome):
            attempt.said = message
        elif isinstance(message, Phase):
            attempt.phase = message.phase
        else:
            attempt.phase = "run" if isinstance(message, Ready) else attempt.phase
            self._report(message)

    def _on_gone(self, gone: Gone) -> None:
        self._end(gone.worker, lambda attempt: endings.ending(attempt, gone))

    def _end_host(self) -> None:
        """The host is gone. Unless we sent it away, its workers are lost, and those they had started."""
        self._keeper.wait()
        with self._lock:
            self._is_lost = True
            left = list(self._attempts)
        for worker in left:
            self._end_lost(worker)

    def _end_lost(self, worker: str) -> None:
        self._end(worker, self._lost)

    def _lost(self, attempt: Attempt) -> Outcome:
        if attempt.killed:
            return attempt.outcome(outcome.STOPPED, "killed when the launch was closed")
        how = _exit_of(self._keeper.returncode)
        return attempt.outcome(
            outcome.LOST, f"the host of all workers {how}, so this one was killed"
        )

    def _end(self, worker: str, ending: Callable[[Attempt], Outcome]) -> None:
        """Reports the end of an attempt, if nobody has."""
        with self._lock:
            attempt = self._attempts.pop(worker, None)
        if attempt is not None:
            self._report(Ended(ending(attempt)))


def start_host(
    plan: LaunchPlan,
    run: RunDirectory,
    report: Callable[[Any], None],
    abroad: Abroad | None = None,
    *,
    forks: bool = False,
) -> ProcessWorkers:
    """Starts the host of a plan's workers, and does not wait until it is there.

    Args:
      forks: It is a copy of this process, which has one thread only.

    Raises:
      LaunchError: it could not be started.
    """
    try:
        with open(briefing.create(), "wb") as file:
            process, control = _start_keeper(file.fileno(), run, forks)
            workers = ProcessWorkers(process, control, report, run.stacks)
            _brief(workers, file.fileno(), plan, run, abroad)
    except (OSError, RuntimeError) as error:  # RuntimeError: there can be no new thread
        why = f"{error}. {endings.limit_behind(error)}"
        raise LaunchError(f"the workers' host could not be started: {why}") from error
    return workers


def _brief(
    workers: ProcessWorkers,
    file: int,
    plan: LaunchPlan,
    run: RunDirectory,
    abroad: Abroad | None,
) -> None:
    """Writes the briefing while the host boots."""
    try:
        workers.send(Hello(briefing.write(file, plan, run, abroad)))
    except BaseException:
        workers.close()
        raise


def _start_keeper(
    file: int, run: RunDirectory, forks: bool
) -> tuple[subprocess.Popen[bytes] | Clone, socket.socket]:
    """The keeper's process, booting, and our end of the connection to the host."""
    ours, theirs = socket.socketpair()
    arguments = (theirs.fileno(), file, os.getpid(), str(run.runtime))
    keep = (theirs.fileno(), file, *run.claimed())
    try:
        with open(run.logs / "host.log", "ab") as log, theirs:
            if forks:
                return Clone(keeper.main, *arguments, log=log.fileno(), keep=keep), ours
            return _booted(arguments, log.fileno(), keep), ours
    except OSError:
        ours.close()
        raise


def _booted(
    arguments: Sequence[int | str], log: int, keep: Sequence[int]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        interpreter.command("keeper:main", *arguments),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        pass_fds=keep,
        start_new_session=True,
    )


def _exit_of(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"exited with code {code}"
