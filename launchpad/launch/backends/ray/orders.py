"""What goes between the launcher and an outpost, as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from launchpad.courier.trust.credentials import Credentials
from launchpad.launch.plan import WorkerPlan


@dataclass(frozen=True)
class Orders:
    """What an outpost must know before its worker is started for the first time.

    Attributes:
      path: The launcher's sys.path; what of it is on the node, too, is added there.
      argv, flags: The launching script's.
      state: Where the worker keeps what its next attempt is to find.
    """

    program: str
    launch_type: str
    worker: WorkerPlan
    path: Sequence[str]
    argv: Sequence[str]
    flags: bytes
    state: str


@dataclass(frozen=True)
class Keys:
    """The secrets of a run. They travel by themselves, so that Ray keeps them in no store."""

    token: bytes
    credentials: Credentials


@dataclass(frozen=True)
class Opened:
    """The outpost is ready: where it is."""

    node: str
    ip: str
    gpus: tuple[str, ...]


@dataclass(frozen=True)
class News:
    """What an outpost has to tell: what its worker has printed, then what has become of it.

    Attributes:
      log: What attempt `attempt` has printed since the last news.
      reports: Reports of `launchpad.launch.backend`, in order.
    """

    attempt: int
    log: bytes
    reports: Sequence[Any]
