"""What goes between the launcher and an outpost, as data."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from launchpad.courier.trust.credentials import Credentials
from launchpad.launch import flag_values
from launchpad.launch.plan import WorkerPlan


@dataclass(frozen=True)
class Origin:
    """The script that has launched: its command line, and where it finds its code.

    Attributes:
      path: Its sys.path; what of it is on a node, too, is added there.
      argv, flags: As `flag_values.capture` gives them.
    """

    path: Sequence[str]
    argv: Sequence[str]
    flags: bytes

    @classmethod
    def here(cls) -> Origin:
        """This process."""
        path = [os.path.abspath(entry) for entry in sys.path]
        return cls(path, tuple(sys.argv), flag_values.capture(sys.argv[0]))


@dataclass(frozen=True)
class Orders:
    """What an outpost must know before its worker is started for the first time.

    Attributes:
      state: Where the worker keeps what its next attempt is to find.
    """

    program: str
    launch_type: str
    worker: WorkerPlan
    origin: Origin
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
