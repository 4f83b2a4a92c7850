"""What a forked child must not share with its parent: open connections.

Of two processes that read from one socket each takes answers of the other, and while a child holds a
socket open, no peer sees that its parent has died. So a child closes its copies at once. Its clients
connect anew with their next call; its servers are the parent's alone.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Inherited(Protocol):
    """Holds sockets. In a child no other thread runs, and locks may be held for ever."""

    def drop_inherited(self) -> None: ...


# One per process by nature: the fork hooks of Python are.
_holders: weakref.WeakSet[Inherited] = weakref.WeakSet()


def drop_in_child(holder: Inherited) -> None:
    """After a fork, the child calls `holder.drop_inherited()` before anything else runs there."""
    _holders.add(holder)


def _drop_all() -> None:
    for holder in tuple(_holders):
        holder.drop_inherited()


os.register_at_fork(after_in_child=_drop_all)
