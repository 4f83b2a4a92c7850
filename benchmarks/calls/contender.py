"""One way to make calls: its server, its client, and why it may be missing here."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any


def nothing_missing() -> str:
    return ""


def needs(module: str) -> Callable[[], str]:
    """A reason to be skipped, where `module` is not installed."""

    def why_not() -> str:
        return "" if importlib.util.find_spec(module) else f"{module} is not installed"

    return why_not


@dataclass(frozen=True)
class Contender:
    """A library to be measured.

    `serve(path, pipe)` runs in a process of its own. It may use the unix socket `path`, sends its
    address when it is up, and serves until it is killed. `connect(address)` runs in another one and
    gives the callable that is measured; which kind of callable, the measurement says.
    """

    name: str
    serve: Callable[[str, Connection], None]
    connect: Callable[[Any], AbstractContextManager[Any]]
    why_not: Callable[[], str] = nothing_missing
    share: float = 1.0  # of the amount of work that the others get, for those that take very long


def available(contenders: list[Contender]) -> list[Contender]:
    """Those that can be measured here."""
    return [contender for contender in contenders if not contender.why_not()]
