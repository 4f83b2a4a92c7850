"""What goes between the launcher and an outpost, as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from launchpad.launch.backends.launch_origin import LauncherInfo
from launchpad.launch.plan import WorkerPlan


@dataclass(frozen=True)
class WorkerSetup:
    """What an outpost must know before its worker is started for the first time.

    Attributes:
        state: Where the worker keeps what its next attempt is to find.
    """

    program: str
    launch_type: str
    worker: WorkerPlan
    origin: LauncherInfo
    state: str


@dataclass(frozen=True)
class ActorReady:
    """The outpost is ready: where it is."""

    node: str
    ip: str
    gpus: tuple[str, ...]


@dataclass(frozen=True)
class ActorUpdate:
    """What an outpost has to tell: what its worker has printed, then what has become of it.

    Attributes:
        log: What attempt `attempt` has printed since the last news.
        reports: Reports of `launchpad.launch.backends.backend`, in order.
    """

    attempt: int
    log: bytes
    reports: Sequence[Any]
