"""A registry of what a forked child must not share with its parent: all of launchpad uses it.

Of two processes that read from one socket each takes answers of the other, and while a child holds a
socket open, no peer sees that its parent has died. Two that go on with one session repeat each other's
numbers, so that a server takes the calls of one for repetitions of the other's. And of the threads only
the one that has forked is in the child: a lock that another one held is never released there, and a call
whose answer another one reads never ends.

So a child, before anything else runs in it:
    free_in_child    frees locks
    reset_in_child   resets what modules keep
    drop_in_child    has each holder close its copies, begin a session of its own, and end what is under way

Its clients connect anew with their next call; its servers are the parent's alone.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar


class Inherited(Protocol):
    """Has sockets, a session or calls under way. In a child no other thread runs."""

    def drop_inherited(self) -> None: ...


T = TypeVar("T")

# One of each per process by nature: the fork hooks of Python are.
_holders: weakref.WeakSet[Inherited] = weakref.WeakSet()
_methods: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()
_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_resets: list[Callable[[], object]] = []
_parent = 0  # the process that has forked this one


def drop_in_child(holder: Inherited) -> None:
    """After a fork, the child calls `holder.drop_inherited()` before anything else runs there."""
    _holders.add(holder)


def call_in_child(holder: Any, method: Callable[[Any], None]) -> None:
    """After a fork, the child calls `method(holder)`: for an object whose users must not see the method."""
    _methods[holder] = method


def free_in_child(lock: T) -> T:
    """Returns a lock, condition or event of `threading`, which from now on is free in forked children.

    What it guards must be usable however far the thread had come that held it.
    """
    _locks.add(lock)
    return lock


def reset_in_child(reset: Callable[[], object]) -> None:
    """After a fork, the child calls `reset()`: what a module keeps begins as when it was imported."""
    _resets.append(reset)


def describe_child() -> str:
    """Return how errors call this process, a forked child."""
    return f"this process ({os.getpid()}) was forked from process {_parent}"


def _drop_all() -> None:
    global _parent
    _parent = os.getppid()
    for lock in tuple(_locks):  # first: what is dropped may take some
        lock._at_fork_reinit()  # as Python's own modules do it
    drops: list[Callable[[], object]] = list(_resets)
    drops += [each.drop_inherited for each in tuple(_holders)]
    drops += [partial(method, holder) for holder, method in tuple(_methods.items())]
    for drop in drops:
        try:
            drop()
        except Exception:  # the others must be dropped all the same
            sys.excepthook(*sys.exc_info())


os.register_at_fork(after_in_child=_drop_all)
