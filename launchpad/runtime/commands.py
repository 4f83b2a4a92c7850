"""Commands: the data that is sent down to workers. Events come back up, see `events.py`.

    Supervisor ──▶ Runner ──▶ Workers.execute(command)           the backend: starts and kills
                                └──▶ Worker.execute(command)     in the worker's process: all else

The supervisor decides on the first five commands below. A command is the same object all the way. It is
pickled where it crosses the border of a process, and only the code that executes it looks into it. A pod gets
the sum of all commands: see `launch/backends/kubernetes/pod_messages.py`.
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
    """Ask this worker to stop. With `restarts` it will be started again, so it may save its state."""

    worker: str
    restarts: bool = False


@dataclass(frozen=True)
class KillWorker:
    """End this worker by force.

    `why` completes the text `learner-0 …`. With `at_once`, the worker gets no time to write its stacks into
    its log, because no worker has a grace period, or the user asked for an immediate end.
    """

    worker: str
    why: str = "did not stop when asked"
    at_once: bool = False


@dataclass(frozen=True)
class AnnounceGone:
    """Announce workers that are gone for good (failed or ended), or are back.

    Attributes:
        gone: Worker → why it is gone; empty if it is back.
        to: The only worker that this is for, because it has just been started; empty for all workers.
    """

    gone: Mapping[str, str]
    to: str = ""


@dataclass(frozen=True)
class AnnounceWatermarks:
    """Send this worker numbers that only grow: see `watermarks.Watermarks`."""

    worker: str
    values: Mapping[str, int]


@dataclass(frozen=True)
class AttachDebugger:
    """Make this worker connect its debugger to the terminal that listens at `path`."""

    worker: str
    path: str
    token: bytes
    thread: str


@dataclass(frozen=True)
class AddressesChanged:
    """Announce the current endpoints of addresses to all workers, where servers can move.

    The endpoint of a server that is not up is empty.
    """

    places: Mapping[str, str]


Command = StartWorker | StopWorker | KillWorker | AnnounceGone | AnnounceWatermarks
"""A command to the workers of a launch: see `lp.Workers.execute`."""

ForwardedCommand = StopWorker | AnnounceGone | AnnounceWatermarks | AttachDebugger
"""A command that reaches the worker itself, and is executed there: see `Worker.execute`."""
