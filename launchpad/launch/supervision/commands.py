"""What the supervisor decides; its thread has the backend do it.

Commands for a worker that is a process are sent to it as they are.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StartWorker:
    """Start this worker."""

    worker: str
    attempt: int


@dataclass(frozen=True)
class StopWorker:
    """Ask this worker to stop. `restarts`: it will be started again, so it may save its state."""

    worker: str
    restarts: bool = False


@dataclass(frozen=True)
class KillWorker:
    """End this worker by force.

    `why` completes `learner-0 …`. `at_once`: without time to write its stacks into its log; the backend sets
    it when the user has asked for an immediate end.
    """

    worker: str
    why: str = "did not stop when asked"
    at_once: bool = False


@dataclass(frozen=True)
class AnnounceGone:
    """Announce to all workers that this one is gone for good (failed or ended); without a `why`, is back."""

    worker: str
    why: str


@dataclass(frozen=True)
class PrintNote:
    """Print this on the terminal."""

    text: str


Command = StartWorker | StopWorker | KillWorker | AnnounceGone | PrintNote
