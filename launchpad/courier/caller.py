"""Who calls: what clients say of themselves, and what a method can ask about the call that it answers.

client    own_peer()      the worker, or the process, that the calling thread belongs to  ──▶ handshake
server    current.get()   the caller of the method that runs here, as its connection knows it
          outcome.get()   what the coroutine that runs here will have returned
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import NamedTuple, Protocol

from launchpad.courier import fork


class Peer(NamedTuple):
    """A caller, as it says itself.

    Attributes:
        name: The worker's name; `pid 4711` outside of workers.
        attempt: Which start of the worker; 0 outside of workers.
        incarnation: 16 bytes, random for each start.
    """

    name: str
    attempt: int = 0
    incarnation: bytes = bytes(16)


class RemoteCaller(Protocol):
    """The caller of a method.

    Attributes:
        call_id: Which of its calls runs; 0 where it makes one at a time.
    """

    call_id: int

    @property
    def peer(self) -> Peer: ...

    def is_gone(self, call_id: int = 0) -> bool:
        """Whether no answer can reach it any more: it has died, or does not wait any longer.

        With `call_id`, also whether it has cancelled that call.
        """


class CoroutineOutcome(Protocol):
    """Of a coroutine that is served."""

    is_cancelled: bool

    @property
    def is_done(self) -> bool: ...


current: ContextVar[RemoteCaller | None] = ContextVar("courier_caller", default=None)
"""In a method that is served, and in the coroutines and streams that it has made; in no thread of its own."""

outcome: ContextVar[weakref.ref[CoroutineOutcome] | None] = ContextVar(
    "courier_outcome", default=None
)
"""In a coroutine that is served, and in the tasks and threads that it has made."""

_provider: Callable[[], Peer | None] = lambda: None  # noqa: E731
_process = Peer("", 0, os.urandom(16))


def provide(peer: Callable[[], Peer | None]) -> None:
    """From now on clients are, to servers, what `peer()` returns, called in their own thread.

    Example:
        provide(lambda: Peer("learner-0", attempt=1, incarnation=os.urandom(16)))
    """
    global _provider
    _provider = peer


def own_peer() -> Peer:
    """The worker, or else the process, that the calling thread belongs to."""
    return _provider() or _process._replace(name=f"pid {os.getpid()}")


def _renew() -> None:
    global _process
    _process = Peer("", 0, os.urandom(16))


fork.reset_in_child(_renew)
