"""The launcher's handle of a worker actor."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, cast

from launchpad.launch.backends.ray import cluster
from launchpad.launch.backends.remote.host_handle import HostHandle


@dataclass(eq=False)
class ActorHandle(HostHandle):
    """A handle of one worker actor. `actor` is Ray's own handle."""

    actor: Any = None

    def call(self, method: str, *arguments: Any, **options: Any) -> Future[Any]:
        reference = getattr(self.actor, method).remote(*arguments, **options)
        return cast("Future[Any]", reference.future())

    def renew(self) -> Future[Any]:
        """Renew the actor's lease. Raise LaunchError if Ray is disconnected: a call would start a new Ray."""
        cluster.check()
        return self.call("renew")

    def post(self, method: str, *arguments: Any, **options: Any) -> None:
        getattr(self.actor, method).remote(*arguments, **options)

    def is_surely_dead(self, error: BaseException) -> bool:
        """Return True if the actor has answered, or Ray has seen its process end on a node that is there."""
        errors = cluster.load().exceptions
        if isinstance(error, errors.RayTaskError):
            return True
        return isinstance(error, errors.ActorDiedError) and "node" not in self.describe_error(error)

    def end(self) -> None:
        cluster.load().kill(self.actor, no_restart=True)

    def describe_death(self, error: BaseException) -> str:
        host = self.ready.ip if self.ready is not None else ""
        what = "has died" if self.is_surely_dead(error) else "was lost"
        return f"its Ray actor on {host} {what}: {self.describe_error(error)}"

    def describe_error(self, error: BaseException) -> str:
        """Return the sentence that matters in one of Ray's errors, which are full of identifiers."""
        cause = getattr(error, "cause", None) or error
        lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
        relevant = [line for line in lines if line.startswith("The actor is dead because")]
        text = (relevant or lines[-1:] or [repr(error)])[0]
        text = text.removeprefix("The actor is dead because ").partition(" Some common causes")[0]
        return text.rpartition(" is unavailable: ")[2].partition(" The task may or may not")[0]
