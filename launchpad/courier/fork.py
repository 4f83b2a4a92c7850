"""A registry of what a forked child must not share with its parent. All of launchpad uses it.

If two processes read from one socket, each takes answers that are meant for the other. As long as a child
holds a socket open, no peer sees that the parent has died. If two processes continue one session, they use
the same numbers, and the server mistakes calls of one process for repetitions of the other's calls.

The child has only the thread that forked. If another thread held a lock, the child can never acquire the
lock. If another thread was going to read a call's answer, the call never ends.

So before anything else runs in a child, this happens:
    free_in_child    locks become free
    reset_in_child   modules reset their state
    drop_in_child    each holder closes its copies of sockets, begins its own session, and ends its calls

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
    """An object that has sockets, a session or calls in flight.

    The child calls `drop_inherited` before it has any other thread.
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
    """Have each forked child call `method(holder)`. For objects whose users must not see such a method."""
    _methods[holder] = method


def free_in_child(lock: T) -> T:
    """Have each forked child free this lock, condition or event of `threading`, and return it.

    Another thread may hold the lock at the fork. The data that the lock guards must be usable in the child
    wherever that thread was.
    """
    _locks.add(lock)
    return lock


def reset_in_child(reset: Callable[[], object]) -> None:
    """Have each forked child call `reset()`, which restores a module's state to that after its import."""
    _resets.append(reset)


def describe_child() -> str:
    """Return the text by which error messages describe this process, which is a forked child."""
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
