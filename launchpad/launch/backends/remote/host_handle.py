"""The launcher's handle of a worker host."""

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
    """A handle of one worker's host, and the attempt that the host runs.

    Attributes:
        attempt: The worker's attempt that the host runs or will start; 0 while there is no attempt.
        ready: The place of the host; None until the host is ready.
        killed: True if the launcher has ordered the attempt to be killed.
        log: The log of the attempt.
        n_sent: The number of commands that have been sent to the host.
        gpus: The GPUs for the worker, if the launcher assigns them and not the cluster.
        is_silent: True if the host is out of reach, and its attempt is reported once its lease has ended.
    """

    worker: str
    attempt: int = 0
    ready: HostReady | None = None
    killed: bool = False
    log: LogWriter | None = field(default=None, repr=False)
    n_sent: int = 0
    gpus: tuple[str, ...] = ()
    is_silent: bool = False

    @abc.abstractmethod
    def call(self, method: str, *arguments: Any, **options: Any) -> Future[Any]:
        """Call a method of the `WorkerHost`. The future fails if the host dies."""

    def renew(self) -> Future[Any]:
        """Renew the lease of the host, if it has one of its own."""
        return self.call("renew")

    def post(self, method: str, *arguments: Any, **options: Any) -> None:
        """Call a method, and ignore its result."""
        self.call(method, *arguments, **options)

    @property
    def lease_of(self) -> object:
        """The host that has the lease: this one, unless the lease is one for all workers of a node."""
        return self

    @abc.abstractmethod
    def is_surely_dead(self, error: BaseException) -> bool:
        """Return True if, after this error of a call, nothing of the worker can run any more."""

    @abc.abstractmethod
    def end(self) -> None:
        """Have the host end, and with it all that is left of the worker. Don't wait for the end."""

    @abc.abstractmethod
    def describe_death(self, error: BaseException) -> str:
        """Return a sentence about a host that has died; `error` is the error of a call to the host."""

    @abc.abstractmethod
    def describe_error(self, error: BaseException) -> str:
        """Return the part of a call's error that matters to the user."""

    def send(self, command: Command | AddressesChanged) -> None:
        """Have the host execute a command, and don't wait. If the host is dead, `next_update` fails."""
        self.post("execute_in_order", self.n_sent, command)
        self.n_sent += 1

    def close_log(self) -> None:
        if self.log is not None:
            self.log.close()
            self.log = None

    def lost(self, error: BaseException) -> Outcome:
        kind = outcome.LOST
        phase = "run"
        host = self.ready.ip if self.ready is not None else ""
        if self.killed:
            kind = outcome.STOPPED
            cause = "killed when it did not stop"
        elif self.ready is None:
            kind = outcome.FAILED
            phase = "start"
            cause = f"could not be started: {self.describe_error(error)}"
        else:
            cause = self.describe_death(error)
        return Outcome(self.worker, kind, phase, self.attempt, cause, host=host)
