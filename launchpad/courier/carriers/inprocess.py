"""Calls between threads of one process, without a socket.

Arguments and results go through the codec all the same, and buffers are copied: a program must not
work in threads, where everything could be shared, and break in processes. The method runs on the
server's own threads, so that deadlines, stop and growth mean the same as over a socket.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from launchpad.courier import codec, wire
from launchpad.courier.later import Later
from launchpad.courier.methods import LATER, Reply, encode_outcome

PREFIX = "inproc:"

LOST = 255  # a reply's kind, never on the wire: the server stopped while the call ran

# One process has one set of in-process addresses, as one host has one set of ports.
_lock = threading.Lock()
_hosts: dict[str, Host] = {}


class Host(Protocol):
    """What an in-process client needs of a server."""

    name: str
    token: bytes

    def admit(self, call: LocalCall) -> bool:
        """Takes the call over; False when the server is stopping."""

    def answer(self, method: bytes, body: wire.Chunk, buffers: list[wire.Chunk]) -> Reply: ...

    def forget(self, call: LocalCall) -> None: ...

    def owe(self, later: Later, answer: Callable[[], None]) -> None: ...


def publish(address: str, host: Host) -> None:
    """Makes `host` reachable at `address`; OSError when another server has it."""
    with _lock:
        if address in _hosts:
            raise OSError(errno.EADDRINUSE, "a living server has this address; stop it", address)
        _hosts[address] = host


def withdraw(address: str, host: Host) -> None:
    """Undoes `publish`; nothing happens if another server has the address."""
    with _lock:
        if _hosts.get(address) is host:
            del _hosts[address]


def find(address: str) -> Host | None:
    """The server that has this address, if one does."""
    with _lock:
        return _hosts.get(address)


class LocalCall:
    """One call on its way through a server of this process; a job for its threads.

    `finish` is called exactly once, with the reply or a NOT_RUN or LOST; by whom is decided by
    whoever is first: the thread that ran it, the server's stop, the caller's deadline.
    """

    is_waiting = False
    is_urgent = False

    def __init__(
        self,
        method: bytes,
        body: bytes,
        buffers: list[wire.Chunk],
        deadline: float | None,
        finish: Callable[[LocalCall], None],
    ) -> None:
        self.method = method
        self.body = body
        self.buffers = buffers
        self.deadline = deadline
        self.host: Host | None = None
        self.kind = 0
        self.reply_body: bytes = b""
        self.reply_buffers: list[wire.Chunk] = []
        self._finish = finish
        self._state_lock = threading.Lock()
        self.has_begun = False
        self._is_settled = False
        self.thread_id = 0  # of the thread that runs it

    def run(self) -> None:
        host = self.host
        assert host is not None
        self.thread_id = threading.get_ident()
        if self._begin():
            body, buffers = self.body, self.buffers
            self.body, self.buffers = b"", []
            kind, reply, views = host.answer(self.method, body, buffers)
            if kind == LATER:
                host.owe(reply, partial(self._finish_later, host, reply))
                return
            self.settle(kind, reply, codec.copy_buffers(views))
        host.forget(self)

    def _finish_later(self, host: Host, later: Later) -> None:
        kind, reply, views = encode_outcome(later)
        self.settle(kind, reply, codec.copy_buffers(views))
        host.forget(self)

    def settle(self, kind: int, body: bytes = b"", buffers: list[wire.Chunk] | None = None) -> bool:
        """Gives the call its one outcome; False when it has one already."""
        with self._state_lock:
            if self._is_settled:
                return False
            self._is_settled = True
            if kind == wire.NOT_RUN and self.has_begun:
                kind = LOST
            self.kind, self.reply_body, self.reply_buffers = kind, body, buffers or []
        self._finish(self)
        return True

    def refuse(self) -> None:
        """The server stops: if the call has not begun, it will not."""
        with self._state_lock:
            if self.has_begun:
                return
        self.abandon()

    def abandon(self) -> None:
        """The server stops: the call is lost if it has begun, and certainly not run if not."""
        self.settle(wire.NOT_RUN, wire.STOPPING)

    def _begin(self) -> bool:
        if self.deadline is not None and self.deadline < time.monotonic():
            self.settle(wire.NOT_RUN, wire.LATE)
        with self._state_lock:
            self.has_begun = not self._is_settled
            return self.has_begun
