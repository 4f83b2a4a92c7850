"""Address: a name that a node owns, which becomes an endpoint when the program runs.

    describing      Address(), owned by one node
    setup           the address gets its name: learner-0/courier
    plan            the name gets an endpoint: unix:learner-0.courier, localhost:port
    in the worker   resolve() asks the run context for the endpoint

A launch never writes into the program's addresses, so one program can run twice at the same time.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import socket
import time
from collections.abc import Callable

from launchpad.courier.client.call import next_pause
from launchpad.courier.deadlines import check_timeout
from launchpad.courier.errors import WorkerFailed
from launchpad.courier.light_dataclass import dataclass
from launchpad.errors import NotRunningError
from launchpad.runtime import context
from launchpad.runtime.context import LaunchedAddress, RunContext

_CONNECT_S = 2.0
_LOOPBACK = "127.0.0.1"
_RESOLVE_S = 60.0
_POLL_S = 0.01

COURIER = "courier"
PORT = "port"
"""The kinds of address: COURIER for a courier server, PORT for a user's own service on a TCP port."""


class Address:
    """A name that a node owns, and that other nodes can resolve once the program runs.

    A CourierNode makes its own address. Make one yourself for a service other than courier; it stands
    for a TCP port:

    Example:
        address = lp.Address("board")
        node = lp.PyClassNode(Board, address)       # in Board: serve(address.resolve())
        node.allocate_address(address)
        program.add_node(node, label="board")
        program.add_node(lp.PyNode(watch, address), label="watcher")    # in watch: connect(address.resolve())

    Attributes:
        role: The last part of the name, such as `board` in `board-0/board`.
        kind: COURIER or PORT.
        name: The whole name; empty except in the copy that a worker gets.
    """

    def __init__(self, role: str = "port", *, kind: str = PORT) -> None:
        self.role = role
        self.kind = kind
        self.uid = os.urandom(8).hex()
        self.name = ""
        self.owner = ""

    def resolve(self) -> str:
        """Return the endpoint of this address: `host:port`, or a courier endpoint such as `unix:/run/…`.

        If workers can move between hosts, wait until the current endpoint is known.

        Raises:
            NotRunningError: called outside a running program, or the endpoint was not known within a minute;
                the text says what to do.
        """
        me = context.try_current()
        if me is not None and self.name:
            return _endpoint_of(me, self.name)
        return self.place().where()

    def wait(self, timeout_s: float | None = 60.0) -> str:
        """Wait until a service listens at this address, then return the endpoint `host:port`.

        Use it for a service of your own that a worker starts at some point. To find out whether the service
        listens, this opens a connection and closes it again, as a TCP probe of Kubernetes does.

        Example:
            def watch(board: lp.Address):
              connect(board.wait(timeout_s=30))

        Args:
            timeout_s: Seconds to wait at most; None waits for as long as it takes.

        Raises:
            TimeoutError: nothing listened there in time; the text names the worker.
            WorkerFailed: the service's worker failed or ended, or the calling worker was asked to stop.
            NotRunningError: called outside a running program.
            TypeError: this is the address of a courier server, whose clients wait by themselves.
        """
        if self.kind == COURIER:
            raise TypeError(f"{self!r} is that of a courier server: its clients wait for it")
        check_timeout(timeout_s)
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        place = self.place()
        pause_s = next_pause()
        while True:
            endpoint = place.where()
            host, _, port = endpoint.rpartition(":")
            if endpoint and _listens(host, port):
                return endpoint
            error = place.failure_check()
            if error is not None:
                raise error
            if time.monotonic() >= deadline:
                raise TimeoutError(
                    f"nothing listens at {self.name or self.role!r} of {place.worker}"
                    f" ({endpoint or 'not placed yet'}) after {timeout_s:g} s: {_why_not(host, port)}"
                )
            time.sleep(min(pause_s, max(0.0, deadline - time.monotonic())))
            pause_s = next_pause(pause_s)

    def lookup(self) -> str | Callable[[], str]:
        """Return the address in the form that a courier client takes.

        If servers can move, this is a function that returns the current endpoint; else it is the endpoint.

        Raises:
            NotRunningError: called outside a running program.
        """
        place = self.place()
        return place.where if place.can_move else place.where()

    def place(self) -> LaunchedAddress:
        """Return where this address is, as seen from the worker or script that the calling thread belongs to.

        Raises:
            NotRunningError: called outside a running program.
        """
        me = context.try_current()
        if me is not None and self.name:
            worker = self.name.partition("/")[0]
            find = functools.partial(_endpoint_of, me, self.name)
            where = AddressLookup(self.name) if me.addresses.can_move else find
            check = functools.partial(_worker_failure, me, worker)
            return LaunchedAddress(where, me.addresses.can_move, worker, check)
        launched = context.launched.get(self.uid)
        if launched is not None:
            return launched
        owner = self.owner or "a node that was not added to a program"
        raise NotRunningError(
            f"the address {self.role!r} of {owner} has no endpoint: no program of this process that has it"
            " is running. Launch the program first and use it before it is stopped, or pass the handle to a"
            " node and use it there."
        )

    def __repr__(self) -> str:
        return f"Address({self.name or self.role!r} of {self.owner or 'no node yet'})"


def _endpoint_of(me: RunContext, address: str) -> str:
    """Return the endpoint of an address, `unix:/run/…/learner-0.sock`.

    If servers can move, wait until the endpoint is known, for a minute at most.

    Raises:
        NotRunningError: there is no such address, its worker has ended, or the minute is over.
    """
    worker = address.partition("/")[0]
    addresses = me.addresses
    deadline = time.monotonic() + _RESOLVE_S
    while True:
        endpoint = addresses.endpoints.get(address)
        if endpoint:
            return endpoint
        if not addresses.can_move:
            names = sorted(addresses.endpoints)
            raise NotRunningError(
                f"program {me.program!r} has no address {address!r}; it has {names}"
            )
        if time.monotonic() >= deadline:
            raise NotRunningError(
                f"the endpoint of {address!r} was not known for {_RESOLVE_S:g} s: {worker} has not"
                " started there, or waits for room. Call resolve() again if it may take longer."
            )
        why = me.link.gone_reason(worker)
        if not why and me.stop.event.is_set():
            why = f"{me.name} was asked to stop"
        if why:
            raise NotRunningError(f"the endpoint of {address!r} is not known: {why}")
        time.sleep(_POLL_S)


def _listens(host: str, port: str) -> bool:
    """Return True if something accepts connections there."""
    with contextlib.suppress(OSError):
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
        return True
    return False


def _why_not(host: str, port: str) -> str:
    """Return why nothing listens there, as far as this host can tell."""
    if host not in ("", "localhost", _LOOPBACK) and _listens(_LOOPBACK, port):
        return (
            f"a service listens at {_LOOPBACK}:{port} of this host, which other hosts do not reach. Let it"
            f" listen on {host}, the host of its address, or on 0.0.0.0"
        )
    return "it has not started its service"


@dataclass(frozen=True)
class AddressLookup:
    """The current endpoint of an address, as the calling worker knows it; empty while it is unknown.

    A client is pickled together with its lookup. An unpickled lookup uses the context of the worker that it
    is then in. Clients are equal if their lookups are equal.
    """

    name: str

    def __call__(self) -> str:
        me = context.try_current()
        return "" if me is None else me.addresses.endpoints.get(self.name, "")


def _worker_failure(me: RunContext, worker: str) -> Exception | None:
    """Return a WorkerFailed if a server's worker has ended or will not start; None if waiting makes sense.

    A client that waits for the server polls this.
    """
    why = me.link.gone_reason(worker)
    # Once the program stops, a server that is not up yet doesn't start any more.
    if not why and me.stop.event.is_set():
        why = f"{worker} does not serve, and {me.name} was asked to stop"
    if why:
        return WorkerFailed(why, server=worker)
    me.link.note_waiting(worker)
    return None


def get_port_from_address(address: str) -> int:
    """Return the port in `host:port`.

    Example:
        server.listen(lp.get_port_from_address(address.resolve()))

    Raises:
        ValueError: the address has no port.
    """
    _, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise ValueError(f"expected an address like 'localhost:8080', got {address!r}")
    return int(port)
