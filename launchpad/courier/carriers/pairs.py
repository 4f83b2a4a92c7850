"""Connections within a process, for the calls that need one: those with streams.

All others do without (inprocess.py). A pair of sockets that have no name leads from the client to the
server, where it is served as any other: so items are copied, and wait, as they do between processes.
"""

from __future__ import annotations

import errno
import socket
from typing import NoReturn

from launchpad.courier.carriers import inprocess

is_stale = None


def connect(address: str, timeout_s: float | None) -> socket.socket:
    """Our end of a new pair. Raises OSError when no server has this address."""
    house = inprocess.find(address)
    if house is None or house.is_inherited:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "no server here has this address", address)
    ours, theirs = socket.socketpair()
    house.welcome(theirs)
    return ours


def check(address: str) -> None:
    """Any text will do."""


def Listener(address: str) -> NoReturn:  # noqa: N802
    """Servers publish themselves: inprocess.publish."""
    raise ValueError(f"nobody listens at {address}: in-process servers are found by name")
