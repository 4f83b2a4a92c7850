"""A worker host as the launcher knows it."""

from __future__ import annotations

import abc
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from launchpad import outcome
from launchpad.launch.backends.remote.worker_host import HostReady
from launchpad.launch.logs.log_writer import LogWriter
from launchpad.outcome import Outcome
from launchpad.runtime.commands import AddressesChanged, Command


@dataclass(eq=False)
class HostHandle(abc.ABC):
    """The host of one worker, and the attempt that it runs.

    Attributes:
        attempt: The worker's attempt that has been started, or is to be; 0 while there is none.
        ready: Where it is; None until it is ready.
        killed: The attempt was told to end.
        log: The log of the attempt.
        n_sent: How many commands it was given.
    """

    worker: str
    attempt: int = 0
    ready: HostReady | None = None
    killed: bool = False
    log: LogWriter | None = field(default=None, repr=False)
    n_sent: int = 0

    @abc.abstractmethod
    def call(self, method: str, *arguments: Any, **options: Any) -> Future[Any]:
        """Calls a method of the `WorkerHost`; the future fails when the host has died."""

    def post(self, method: str, *arguments: Any, **options: Any) -> None:
        """Calls a method, and does not ask what has come of it."""
        self.call(method, *arguments, **options)

    @abc.abstractmethod
    def end(self) -> None:
        """Has the host end, and with it all of the worker that is left. Does not wait."""

    @abc.abstractmethod
    def describe_death(self, error: BaseException) -> str:
        """Return a sentence about a host that has died; `error` is what a call failed with."""

    @abc.abstractmethod
    def describe_error(self, error: BaseException) -> str:
        """Return the part of a call's error that matters to the user."""

    def send(self, command: Command | AddressesChanged) -> None:
        """Have the host execute a command, and don't wait; if it is dead, `next_update` fails."""
        self.post("execute_in_order", self.n_sent, command)
        self.n_sent += 1

    def close_log(self) -> None:
        if self.log is not None:
            self.log.close()
            self.log = None

    def lost(self, error: BaseException) -> Outcome:
        kind, phase, host = outcome.LOST, "run", self.ready.ip if self.ready is not None else ""
        if self.killed:
            kind, cause = outcome.STOPPED, "killed when it did not stop"
        elif self.ready is None:
            kind, phase = outcome.FAILED, "start"
            cause = f"could not be started: {self.describe_error(error)}"
        else:
            cause = self.describe_death(error)
        return Outcome(self.worker, kind, phase, self.attempt, cause, host=host)
