"""A registry of what a forked child must not share with its parent. All of launchpad uses it.

If two processes read from one socket, each takes answers that are meant for the other, and as long as a
child holds a socket open, no peer sees that the parent has died. If two processes continue one session,
they use the same numbers, and the server mistakes the calls of one for repetitions of the other's. And
the child has only the thread that forked: if another thread held a lock, the child never gets it, and a
call whose answer another thread reads never ends.

So before anything else runs in a child, this happens:
    free_in_child    locks become free
    reset_in_child   modules reset their state
    drop_in_child    each holder closes its copies, begins its own session, and ends what is under way

The child's clients reconnect with their next call. Its servers belong to the parent alone.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar


class Inherited(Protocol):
    """An object that has sockets, a session or calls under way.

    When a child calls `drop_inherited`, no other thread runs there.
    """

    def drop_inherited(self) -> None: ...


T = TypeVar("T")

# One of each per process, because Python's fork hooks are per process too.
_holders: weakref.WeakSet[Inherited] = weakref.WeakSet()
_methods: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()
_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_resets: list[Callable[[], object]] = []
_parent = 0  # the process that forked this one


def drop_in_child(holder: Inherited) -> None:
    """Have each forked child call `holder.drop_inherited()` before anything else runs there."""
    _holders.add(holder)


def call_in_child(holder: Any, method: Callable[[Any], None]) -> None:
    """Have each forked child call `method(holder)`: for an object whose users must not see the method."""
    _methods[holder] = method


def free_in_child(lock: T) -> T:
    """Have each forked child free this lock, condition or event of `threading`; return it.

    The data that it guards must be usable in the child wherever the thread that held the lock was.
    """
    _locks.add(lock)
    return lock


def reset_in_child(reset: Callable[[], object]) -> None:
    """Have each forked child call `reset()`, which makes a module's state what it was when imported."""
    _resets.append(reset)


def describe_child() -> str:
    """Return how error messages describe this process, which is a forked child."""
    return f"this process ({os.getpid()}) was forked from process {_parent}"


def _drop_all() -> None:
    global _parent
    _parent = os.getppid()
    # Locks come first: a holder that drops its state may acquire some of them.
    for lock in tuple(_locks):
        lock._at_fork_reinit()  # Python's own modules do the same
    drops: list[Callable[[], object]] = list(_resets)
    drops += [holder.drop_inherited for holder in tuple(_holders)]
    drops += [partial(method, holder) for holder, method in tuple(_methods.items())]
    for drop in drops:
        try:
            drop()
        except Exception:  # the other holders must still drop their state
            sys.excepthook(*sys.exc_info())


os.register_at_fork(after_in_child=_drop_all)
