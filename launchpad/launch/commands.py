"""Commands: what the supervisor wants done. Its thread has the backend do it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Start:
    """Start this worker."""

    worker: str
    attempt: int


@dataclass(frozen=True)
class Ask:
    """Ask this worker to stop. `restarts`: it will be started again, so it may save what it knows."""

    worker: str
    restarts: bool = False


@dataclass(frozen=True)
class Kill:
    """End this worker by force. `why` completes `learner-0 …`."""

    worker: str
    why: str = "did not stop when asked"


@dataclass(frozen=True)
class TellGone:
    """Tell all workers that this one is gone for good: it failed or has ended; without a `why`, is back."""

    worker: str
    why: str


@dataclass(frozen=True)
class Note:
    """Let the person at the terminal know."""

    text: str


Command = Start | Ask | Kill | TellGone | Note
