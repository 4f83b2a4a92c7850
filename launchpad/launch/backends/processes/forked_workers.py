"""Forked workers: commands for the forkserver, and reports made of its messages.

Each start of a worker is one `ProcessAttempt`; it ends once, with what `exit_status` makes of the worker's
report and the kernel's. Whether the forkserver is a process of its own or in this one is not known here.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from launchpad import outcome
from launchpad.launch.backends.backend import Workers
from launchpad.launch.backends.processes import exit_status, messages
from launchpad.launch.backends.processes.exit_status import ProcessAttempt
from launchpad.launch.supervision import worker_state
from launchpad.outcome import Outcome
from launchpad.runtime.events import Ended, Exiting, ProcessStarted, Ready, Returned

_GARBLED = (
    "something in its process has written to a descriptor that it has not opened: launchpad's connection to"
    " the launcher"
)
_STACKS_S = 2.0
"""How long a worker may take to write its stacks."""

_POLL_S, _UNCHANGED = 0.005, 6
"""How often that file is looked at; after so many looks without anything new it is complete."""


class ForkedWorkers(Workers):
    """The workers of one forkserver.

    Args:
        send: Takes commands for the forkserver.
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
        with self._lock:
            self._attempts[worker] = ProcessAttempt(worker, attempt)
            lost = self._lost
        if lost is not None:
            self._end(worker, lost)
        else:
            self.send(worker_state.StartWorker(worker, attempt))

    def request_stop(self, worker: str, *, restarts: bool = False) -> None:
        self.send(worker_state.StopWorker(worker, restarts))

    def kill(self, worker: str) -> None:
        """Has it and its process group killed, after a moment in which it writes its stacks to its log."""
        with self._lock:
            if worker in self._attempts:
                self._attempts[worker].killed = True
        self.send(worker_state.KillWorker(worker, at_once=self._skips_grace))

    def skip_grace(self) -> None:
        self._skips_grace = True

    def announce_gone(self, worker: str, why: str) -> None:
        self.send(worker_state.AnnounceGone(worker, why))

    def announce_watermarks(self, worker: str, values: Mapping[str, int]) -> None:
        self.send(worker_state.AnnounceWatermarks(worker, values))

    def attach(self, worker: str, path: str, token: bytes, thread: str) -> None:
        self.send(messages.AttachDebugger(worker, path, token, thread))

    def place(self, places: Mapping[str, str]) -> None:
        """Sends to all workers where addresses are now."""
        self.send(messages.AddressesChanged(places))

    def stacks(self, worker: str) -> str:
        """What faulthandler writes in its process, even when that hangs in C code."""
        file = self._stacks(worker)
        begin = size = _size(file)
        self.send(messages.DumpStacks(worker))
        deadline, unchanged = time.monotonic() + _STACKS_S, 0
        while unchanged < _UNCHANGED and time.monotonic() < deadline:
            time.sleep(_POLL_S)
            before, size = size, _size(file)
            unchanged = unchanged + 1 if size == before and size > begin else 0
        if size <= begin:
            return "(no answer: it has just begun, has ended, or is stuck in the kernel)\n"
        with file.open("rb") as written:
            written.seek(begin)
            return written.read().decode(errors="replace")

    def close(self) -> None:
        """Has the forkserver end what may still run, and then itself."""
        with self._lock:
            for attempt in self._attempts.values():
                attempt.killed = True
        self.send(messages.EndLaunch())

    def on(self, message: Any) -> None:
        if isinstance(message, ProcessStarted):
            attempt = self._attempts[message.worker]
            attempt.pid, attempt.phase = message.pid, "import"
            self._report(message)
        elif isinstance(message, Ended):  # it could not have a process
            ended = message.outcome
            self._end(ended.worker, lambda attempt: ended)
        elif isinstance(message, messages.ChildExited):
            exited = message
            self._end(message.worker, lambda attempt: exit_status.ending(attempt, exited))
        elif isinstance(message, messages.Garbled):
            self._on_garbled(self._attempts[message.worker])
        elif isinstance(message, messages.FromWorker):
            attempt = self._attempts[message.worker]
            try:
                sent = pickle.loads(message.frame)
            except Exception:  # bytes of another's within ours
                self._on_garbled(attempt)
                return
            if isinstance(sent, Ended):
                attempt.reported = sent.outcome
                self._report(Exiting(attempt.worker, attempt.number))
            elif isinstance(sent, messages.Awaits):
                attempt.awaits = sent.what
            elif isinstance(sent, Exiting):
                attempt.awaits = sent.awaits
                self._report(sent)
            elif isinstance(sent, messages.ReturnedInFile):
                self._report(_read_result(sent))
            elif isinstance(sent, messages.Phase):
                attempt.phase = sent.phase
            else:
                attempt.phase = "run" if isinstance(sent, Ready) else attempt.phase
                self._report(sent)

    def _on_garbled(self, attempt: ProcessAttempt) -> None:
        """Ends a worker that has written to a descriptor of ours: its reports cannot be read any more."""
        if attempt.reported is not None:
            return
        attempt.reported = attempt.outcome(outcome.FAILED, _GARBLED)
        self.send(worker_state.KillWorker(attempt.worker, at_once=True))

    def on_lost(self, lost: Callable[[ProcessAttempt], Outcome]) -> None:
        """Ends those that ran, and any that are still to be started: there is no forkserver any more."""
        with self._lock:
            self._lost = lost
            left = list(self._attempts)
        for worker in left:
            self._end(worker, lost)

    def _end(self, worker: str, ending: Callable[[ProcessAttempt], Outcome]) -> None:
        """Reports the end of an attempt, unless that has been done."""
        with self._lock:
            attempt = self._attempts.pop(worker, None)
        if attempt is not None:
            self._report(Ended(ending(attempt)))


def _read_result(sent: messages.ReturnedInFile) -> Returned:
    """What a worker has written into a file, which is then deleted."""
    try:
        with open(sent.path, "rb") as file:
            os.unlink(sent.path)
            result: Returned = pickle.load(file)
    except Exception as error:  # also MemoryError
        why = f"what {sent.worker} returned could not be read: {type(error).__name__}: {error}"
        return Returned(sent.worker, sent.attempt, error=why)
    return result


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
