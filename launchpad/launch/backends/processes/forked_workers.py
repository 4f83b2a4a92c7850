"""Forked workers: commands for the host that forks them, and reports made of what it says.

Each start of a worker is one `ProcessAttempt`; it ends once, with what `endings` makes of the worker's word
and the kernel's. Where the host is, in a process of its own or in this one, is not known here.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from launchpad.events import Ended, ProcessStarted, Ready
from launchpad.launch.backends.backend import Workers
from launchpad.launch.backends.processes import exit_status, stack_dump
from launchpad.launch.backends.processes.exit_status import ProcessAttempt
from launchpad.launch.backends.processes.messages import (
    AddressesChanged,
    ChildExited,
    DumpStacks,
    EndLaunch,
    FromWorker,
    Phase,
)
from launchpad.launch.supervision.commands import AnnounceGone, KillWorker, StartWorker, StopWorker
from launchpad.outcome import Outcome


class ForkedWorkers(Workers):
    """The workers of one host.

    Args:
        send: Takes commands for the host.
        report: Where reports go, from the thread that calls `on` or from a caller's.
        stacks: The file into which a worker writes its stacks.
    """

    def __init__(
        self,
        send: Callable[[Any], None],
        report: Callable[[Any], None],
        stacks: Callable[[str], Path],
    ) -> None:
        self.send, self._report, self._stacks = send, report, stacks
        self._lock = threading.Lock()
        self._attempts: dict[str, ProcessAttempt] = {}
        self._skips_grace = False
        self._lost: Callable[[ProcessAttempt], Outcome] | None = None

    def start(self, worker: str, attempt: int) -> None:
        """Has it forked."""
        with self._lock:
            self._attempts[worker] = ProcessAttempt(worker, attempt)
            lost = self._lost
        if lost is not None:
            self._end(worker, lost)
        else:
            self.send(StartWorker(worker, attempt))

    def request_stop(self, worker: str, *, restarts: bool = False) -> None:
        """Tells it."""
        self.send(StopWorker(worker, restarts))

    def kill(self, worker: str) -> None:
        """Kills it and its process group, after it had a moment to write its stacks to its log."""
        with self._lock:
            if worker in self._attempts:
                self._attempts[worker].killed = True
        self.send(KillWorker(worker, at_once=self._skips_grace))

    def skip_grace(self) -> None:
        """For all kills to come."""
        self._skips_grace = True

    def announce_gone(self, worker: str, why: str) -> None:
        """Tells all."""
        self.send(AnnounceGone(worker, why))

    def place(self, places: Mapping[str, str]) -> None:
        """Tells all where addresses are now."""
        self.send(AddressesChanged(places))

    def stacks(self, worker: str) -> str:
        """What faulthandler writes in its process, even when that hangs in C code."""
        return stack_dump.shown(self._stacks(worker), lambda: self.send(DumpStacks(worker)))

    def close(self) -> None:
        """Has the host end what may still run, and then itself."""
        with self._lock:
            for attempt in self._attempts.values():
                attempt.killed = True
        self.send(EndLaunch())

    def on(self, message: Any) -> None:
        """What the host says."""
        if isinstance(message, ProcessStarted):
            attempt = self._attempts[message.worker]
            attempt.pid, attempt.phase = message.pid, "import"
            self._report(message)
        elif isinstance(message, Ended):  # it could not have a process
            ended = message.outcome
            self._end(ended.worker, lambda attempt: ended)
        elif isinstance(message, ChildExited):
            exited = message
            self._end(message.worker, lambda attempt: exit_status.ending(attempt, exited))
        elif isinstance(message, FromWorker):
            self._on_from_worker(self._attempts[message.worker], pickle.loads(message.frame))

    def _on_from_worker(self, attempt: ProcessAttempt, message: Any) -> None:
        if isinstance(message, Ended):
            attempt.reported = message.outcome
        elif isinstance(message, Phase):
            attempt.phase = message.phase
        else:
            attempt.phase = "run" if isinstance(message, Ready) else attempt.phase
            self._report(message)

    def on_lost(self, lost: Callable[[ProcessAttempt], Outcome]) -> None:
        """There is no host any more: so end those that ran, and any that are still to be started."""
        with self._lock:
            self._lost = lost
            left = list(self._attempts)
        for worker in left:
            self._end(worker, lost)

    def _end(self, worker: str, ending: Callable[[ProcessAttempt], Outcome]) -> None:
        """Reports the end of an attempt, if that has not been done."""
        with self._lock:
            attempt = self._attempts.pop(worker, None)
        if attempt is not None:
            self._report(Ended(ending(attempt)))
