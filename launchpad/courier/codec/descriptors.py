"""Objects that stand for a descriptor of their process, of which pickle would send the number.

In the process where such a number arrives it is another file, such as the worker's own log, or none.
multiprocessing can send them to its children, with the descriptor. Sockets refuse to be pickled already.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NoReturn


def reducers(connection: Any) -> dict[type, Callable[[Any], Any]]:
    """Refuse the ends of pipes, by their types in `multiprocessing.connection`."""
    names = ("Connection", "PipeConnection")
    return {getattr(connection, name): _refuse for name in names if hasattr(connection, name)}


def _refuse(end: Any) -> NoReturn:
    raise TypeError(
        f"one end of a pipe, {end!r}, cannot be sent: it is a descriptor of this process (pid"
        f" {os.getpid()}). Let workers call each other by handles, or use lp.QueueNode. Make a pipe to a"
        " child of a worker in that worker."
    )
