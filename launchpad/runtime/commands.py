"""Commands: what is sent down to workers, as data. What comes back up are events, see `events.py`.

    Supervisor ──▶ Runner ──▶ Workers.execute(command)           the backend: starts and kills
                                └──▶ Worker.execute(command)     in the worker's process: all else

The supervisor decides on the first five. A command is the same object all the way: it is pickled where it
crosses the border of a process, and only what executes it looks into it. To a pod goes what they add up to:
see `launch/backends/kubernetes/pod_messages.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from launchpad.courier.light_dataclass import dataclass


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

    `why` completes `learner-0 …`. `at_once`: without time to write its stacks into its log, as the user wants
    it: no worker has a grace period, or the user has asked for an immediate end.
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
class AnnounceWatermarks:
    """Send this worker numbers that only grow: see `watermarks.Watermarks`."""

    worker: str
    values: Mapping[str, int]


@dataclass(frozen=True)
class AttachDebugger:
    """Have this worker connect its debugger with the terminal that listens there."""

    worker: str
    path: str
    token: bytes
    thread: str


@dataclass(frozen=True)
class AddressesChanged:
    """Where addresses are now; empty for one that is nowhere. Sent to all workers, where servers move."""

    places: Mapping[str, str]


Command = StartWorker | StopWorker | KillWorker | AnnounceGone | AnnounceWatermarks
"""What the workers of a launch are told: see `lp.Workers.execute`."""

ForwardedCommand = StopWorker | AnnounceGone | AnnounceWatermarks | AttachDebugger
"""What reaches the worker itself, and is executed there: see `Worker.execute`."""
