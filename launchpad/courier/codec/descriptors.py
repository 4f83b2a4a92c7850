"""Refusal of objects that stand for a file descriptor of their process.

Pickle would send the descriptor's number. In the process that receives it, the number belongs to another
file, such as the worker's own log, or to no file. multiprocessing can send such an object to its children,
together with the descriptor. Sockets refuse to be pickled by themselves.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NoReturn


def reducers(connection: Any) -> dict[type, Callable[[Any], Any]]:
    """Return reducers that refuse the pipe ends of `multiprocessing.connection`, by type."""
    names = ("Connection", "PipeConnection")
    return {getattr(connection, name): _refuse for name in names if hasattr(connection, name)}


def _refuse(end: Any) -> NoReturn:
    raise TypeError(
        f"one end of a pipe, {end!r}, cannot be sent: it is a descriptor of this process (pid"
        f" {os.getpid()}). Let workers call each other by handles, or use lp.QueueNode. Make a pipe to a"
        " child of a worker in that worker."
    )
