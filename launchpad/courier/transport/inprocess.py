"""Pairs of sockets within one process, from a client to a server whose address is a mere name.

    client ── one end ═══ pair of sockets ═══ the other end ──▶ the server, as a connection it has accepted

One process has one set of these addresses, as one host has one set of ports. All else is as it is between
processes: arguments are copied, calls run on threads of the server, streams wait for their reader.
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
"""A process and no other: none of another host, no forked child, no later one with its pid."""

Accept = Callable[[Socket], object]


class _LocalServer(NamedTuple):
    """A server that has an address."""

    process: Process
    accept: Accept


is_stale = None  # a write to a peer that has closed fails at once

_lock = fork.free_in_child(Lock())
_servers: dict[str, _LocalServer] = {}
_secrets: dict[int, bytes] = {}  # by pid: a forked child has its parent's, too


def this_process() -> Process:
    """Return what identifies the calling process."""
    pid = os.getpid()
    return pid, _secrets.get(pid) or _secrets.setdefault(pid, os.urandom(8))


def publish(address: str, accept: Accept) -> None:
    """Have `accept` called with the server's end of each pair that a client at `address` makes.

    Raises OSError when another server has the address.
    """
    with _lock:
        if address in _servers:
            what = "another server already listens on this address; stop it"
            raise OSError(errno.EADDRINUSE, what, address)
        _servers[address] = _LocalServer(this_process(), accept)


def withdraw(address: str, accept: Accept) -> None:
    """Undo `publish`; nothing happens if another server has the address."""
    with _lock:
        server = _servers.get(address)
        if server is not None and server.accept == accept:
            del _servers[address]


def is_in_another_process(address: str, made_in: Process) -> bool:
    """True if threads of another process serve `address`: for a client that was made in `made_in`."""
    server = _servers.get(address)
    serving = made_in if server is None else server.process
    return serving != this_process()


@kept_whole
def connect(address: str, timeout_s: float | None) -> socket.socket:
    """Return the client's end of a new pair. Raises OSError when no server has this address."""
    server = _servers.get(address)
    if server is None or server.process != this_process():
        raise ConnectionRefusedError(errno.ECONNREFUSED, "no server here has this address", address)
    ours, theirs = stream_socket.blocking_pair()
    # The server's poller is entered by a thread that may be interrupted: it must not be left half registered.
    in_another_thread(server.accept, theirs)
    return ours


def check(address: str) -> None:
    """Any text will do."""


def listen(address: str) -> NoReturn:
    """There is no socket to listen on: a server makes itself known with `publish`."""
    raise ValueError(f"no socket listens at {address}: in-process servers are found by name")
