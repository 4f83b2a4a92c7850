"""A worker actor as the launcher knows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from launchpad import outcome
from launchpad.launch.backends.ray import cluster
from launchpad.launch.backends.ray.worker_actor import ActorReady
from launchpad.launch.logs.log_writer import LogWriter
from launchpad.outcome import Outcome


@dataclass(eq=False)
class ActorHandle:
    """One actor and the attempt that it runs.

    Attributes:
        actor: Ray's handle of it.
        attempt: The worker's attempt that has been started, or is to be; 0 while there is none.
        ready: Where it is; None until it is ready.
        killed: The attempt was told to end.
        log: The log of the attempt.
        n_sent: How many commands it was given.
    """

    worker: str
    actor: Any
    attempt: int = 0
    ready: ActorReady | None = None
    killed: bool = False
    log: LogWriter | None = field(default=None, repr=False)
    n_sent: int = 0

    def send(self, command: str, *arguments: Any, **options: Any) -> None:
        """Has the actor execute a command and does not wait; if it is dead, `next_update` fails."""
        self.actor.execute_in_order.remote(self.n_sent, command, *arguments, **options)
        self.n_sent += 1

    def end(self) -> None:
        """Has Ray end the actor, and with it all of the worker that is left."""
        cluster.load().kill(self.actor, no_restart=True)

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
            cause = f"could not be started: {_describe_error(error)}"
        else:
            cause = f"its Ray actor on {host} has died: {_describe_error(error)}"
        return Outcome(self.worker, kind, phase, self.attempt, cause, host=host)


def _describe_error(error: BaseException) -> str:
    """What matters in an error of Ray's, which comes with a form full of identifiers."""
    cause = getattr(error, "cause", None) or error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    relevant = [line for line in lines if line.startswith("The actor is dead because")]
    text = (relevant or lines[-1:] or [repr(error)])[0]
    text = text.removeprefix("The actor is dead because ").partition(" Some common causes")[0]
    return text.rpartition(" is unavailable: ")[2].partition(" The task may or may not")[0]
