"""The servers of this process that have an in-process address, and connections to them.

One process has one set of these addresses, as one host has one set of ports.

Calls with streams need a connection; all others do without (inprocess/call.py). A pair of sockets
without names leads from the client to the server, where it is served as any other: so items are
copied, and wait, as they do between processes. For them this module is a `transport.Transport`.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING, NoReturn

from launchpad.courier import fork
from launchpad.courier.interruptions import Lock
from launchpad.courier.server.handshake import Handshake
from launchpad.courier.transport import stream_socket

if TYPE_CHECKING:
    from launchpad.courier.server.core import ServerCore

is_stale = None

_lock = fork.free_in_child(Lock())
_cores: dict[str, ServerCore] = {}

find = _cores.get  # the server that has an address, if one does


_process_ids: dict[int, bytes] = {}


def process_id() -> tuple[int, bytes]:
    """This process and no other: none of another host, no forked child, no later one with its pid."""
    pid = os.getpid()
    return pid, _process_ids.get(pid) or _process_ids.setdefault(pid, os.urandom(8))


def publish(address: str, core: ServerCore) -> None:
    """Makes `core` reachable at `address`; OSError when another server has it."""
    with _lock:
        if address in _cores:
            what = "another server already listens on this address; stop it"
            raise OSError(errno.EADDRINUSE, what, address)
        _cores[address] = core


def withdraw(address: str, core: ServerCore) -> None:
    """Undoes `publish`; nothing happens if another server has the address."""
    with _lock:
        if _cores.get(address) is core:
            del _cores[address]


def connect(address: str, timeout_s: float | None) -> socket.socket:
    """The client's end of a new pair. Raises OSError when no server has this address."""
    core = find(address)
    if core is None or core.is_inherited:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "no server here has this address", address)
    ours, theirs = stream_socket.blocking_pair()
    core.poller.park(Handshake(theirs, core))
    return ours


def check(address: str) -> None:
    """Any text will do."""


def listen(address: str) -> NoReturn:
    """There is no socket to listen on: a server makes itself known with `publish`."""
    raise ValueError(f"no socket listens at {address}: in-process servers are found by name")
