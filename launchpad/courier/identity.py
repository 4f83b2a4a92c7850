"""What this process, or this part of it, is called by the servers that it talks to.

identity.provide(lambda: current_worker().name)
"""

from __future__ import annotations

import os
from collections.abc import Callable

_provider: Callable[[], str] | None = None


def provide(name: Callable[[], str]) -> None:
    """From now on clients introduce themselves with what `name()` returns, in their own thread."""
    global _provider
    _provider = name


def name() -> str:
    """Who the calling thread belongs to."""
    return (_provider() if _provider is not None else "") or f"pid {os.getpid()}"
