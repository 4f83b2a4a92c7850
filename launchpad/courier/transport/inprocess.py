"""Socket pairs within one process, between clients and servers. An address is just a name.

    client ── one end ═══ pair of sockets ═══ the other end ──▶ the server, as a connection it has accepted

Each process has its own set of these addresses, as each host has its own set of ports. Everything else works
as between processes: arguments are copied, calls run on threads of the server, streams wait for their reader.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from launchpad.courier import fork
from launchpad.courier.interruptions import Lock, in_another_thread, kept_whole
from launchpad.courier.transport import stream_socket
from launchpad.courier.transport.stream_socket import Socket

Process = tuple[int, bytes]
"""A unique id of a process. Processes on other hosts, forked children and later processes with the same pid
have other ids."""

Accept = Callable[[Socket], object]


class _LocalServer(NamedTuple):
    """A server that is published at an address."""

    process: Process
    accept: Accept


is_stale = None  # a write to a peer that has closed fails at once

# Held to look up an address and change it, so that two servers can't both find it free.
_lock = fork.free_in_child(Lock())
_servers: dict[str, _LocalServer] = {}
# The key is the pid, because a forked child inherits its parent's entry.
_secrets: dict[int, bytes] = {}


def this_process() -> Process:
    """Return the unique id of the calling process."""
    pid = os.getpid()
    return pid, _secrets.get(pid) or _secrets.setdefault(pid, os.urandom(8))


def publish(address: str, accept: Accept) -> None:
    """Publish a server at `address`.

    Each `connect` calls `accept` with the server's end of a new socket pair.

    Raises:
        OSError: Another server has the address.
    """
    with _lock:
        if address in _servers:
            message = "another server already listens on this address; stop it"
            raise OSError(errno.EADDRINUSE, message, address)
        _servers[address] = _LocalServer(this_process(), accept)


def withdraw(address: str, accept: Accept) -> None:
    """Undo `publish`. Do nothing if another server has the address."""
    with _lock:
        server = _servers.get(address)
        if server is not None and server.accept == accept:
            del _servers[address]


def is_in_another_process(address: str, made_in: Process) -> bool:
    """Return True if threads of another process serve `address`.

    If no server has the address, the process `made_in` counts, in which the client was made.
    """
    server = _servers.get(address)
    process = made_in if server is None else server.process
    return process != this_process()


@kept_whole
def connect(address: str, timeout_s: float | None) -> socket.socket:
    """Return the client's end of a new socket pair. Raises OSError if no server here has this address."""
    server = _servers.get(address)
    if server is None or server.process != this_process():
        raise ConnectionRefusedError(errno.ECONNREFUSED, "no server here has this address", address)
    ours, theirs = stream_socket.blocking_pair()
    # A signal may interrupt this thread at any moment. `accept` runs to its end all the same, so that the
    # connection isn't left half registered with the server's poller.
    in_another_thread(server.accept, theirs)
    return ours


def check(address: str) -> None:
    """Accept any address: every text is a valid name."""


def listen(address: str) -> NoReturn:
    """Raise ValueError: there is no socket to listen on. A server calls `publish` instead."""
    raise ValueError(f"no socket listens at {address}: in-process servers are found by name")
