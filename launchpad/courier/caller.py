"""Callers: descriptions that clients send of themselves, for methods that ask who calls them.

client    own_peer()      the worker, or the process, that the calling thread belongs to  ──▶ handshake
server    current.get()   the caller of the method that runs here, as its connection knows it
          outcome.get()   the outcome of the coroutine that runs here
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import NamedTuple, Protocol

from launchpad.courier import fork


class Peer(NamedTuple):
    """A caller, as it describes itself.

    Attributes:
        name: The worker's name; `pid 4711` outside of workers.
        attempt: The number of the worker's start; 0 outside of workers.
        incarnation: 16 bytes, random for each start.
    """

    name: str
    attempt: int = 0
    incarnation: bytes = bytes(16)


class RemoteCaller(Protocol):
    """The caller of a method.

    Attributes:
        call_id: The number of the caller's call that runs; 0 if the caller makes one call at a time.
    """

    call_id: int

    @property
    def peer(self) -> Peer: ...

    def is_gone(self, call_id: int = 0) -> bool:
        """Return True if no answer can reach the caller, because it has died or has stopped waiting.

        With `call_id`, also return True if the caller has cancelled that call.
        """


class CoroutineOutcome(Protocol):
    """The outcome of a coroutine that answers a call, for the code that runs in it."""

    is_cancelled: bool

    @property
    def is_done(self) -> bool: ...


current: ContextVar[RemoteCaller | None] = ContextVar("courier_caller", default=None)
"""The caller, within a served method and the coroutines and streams that the method makes.

Threads that the method starts don't have this context.
"""

outcome: ContextVar[weakref.ref[CoroutineOutcome] | None] = ContextVar(
    "courier_outcome", default=None
)
"""The coroutine's outcome, within a served coroutine and the tasks and threads that it starts."""

_provider: Callable[[], Peer | None] = lambda: None  # noqa: E731
_process = Peer("", 0, os.urandom(16))


def provide(peer: Callable[[], Peer | None]) -> None:
    """Let clients describe themselves to servers with the result of `peer()`, called in the client's thread.

    Example:
        provide(lambda: Peer("learner-0", attempt=1, incarnation=os.urandom(16)))
    """
    global _provider
    _provider = peer


def own_peer() -> Peer:
    """Return the worker that the calling thread belongs to, or else the process."""
    return _provider() or _process._replace(name=f"pid {os.getpid()}")


def _renew() -> None:
    global _process
    _process = Peer("", 0, os.urandom(16))


fork.reset_in_child(_renew)
