"""The facts that a client knows about its server: address, name, token, limits, and its last hello.

These facts are the same for every transport. A client has one `ServerInfo`, whatever options its calls have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from launchpad.courier.call_stack import Edge
from launchpad.courier.protocol import framing, handshake
from launchpad.courier.security import keyring, published_token
from launchpad.courier.shm import segments
from launchpad.courier.transport import inprocess, network_address
from launchpad.courier.transport.link import Link

_MAY_MOVE = frozenset({"unix", "tcp", "tcp+plaintext"})
_UNIX_SOCKETS = ("unix:", network_address.INPROCESS)


class ServerInfo:
    """A server, as one of its clients knows it. Safe from any thread.

    Either the server stays at one address, or it can move, and a function returns its current address. In
    the second case the client calls `locate` before it makes or uses a connection. What belongs to one
    connection is looked up by the address that this connection was made to.

    The class has more than 15 attributes because each is a fact about the same server. All kinds of calls
    (over sockets, shared memory and gRPC) read several of them.

    Attributes:
        address: The address of the server when `locate` was last called; "" if it was not known then.
        server: The name of the server. In the handshake the server gives its own name.
        labels: The label of the server, in a list that outlives this object.
        server_hello: The server's part of the last handshake; None before the first.
        takes_bytes: The size of the largest message that the server accepts, as far as the client knows.
        max_bytes: The size of the largest message that the client accepts.
        is_unreachable: True if the last attempt to connect failed.
        restart_callbacks: Functions to call when a new process answers at the server's address.
        idempotent: The methods that the server's class has declared to be idempotent.
        link: A link that delays the messages; None in production.
        shares_memory: True if client and server are on one host, and can send each other files.
        made_in: The process of the server, if only threads of that process can reach it; else None.
        own_token: The token that the client was given; None if the keyring has it.
        fetch_waits: A function that asks the server at an address, with a token, which calls wait there.
    """

    def __init__(
        self,
        address: str | Callable[[], str],
        *,
        name: str | None,
        token: bytes | None,
        failure_check: Callable[[], Exception | None] | None,
        max_bytes: int,
        idempotent: frozenset[bytes],
        fetch_waits: Callable[[str, bytes | None], list[Edge]],
        link: Link | None = None,
    ) -> None:
        if not isinstance(address, str) and not callable(address):
            raise TypeError(
                f"a client's address is a str, or a callable that returns one, not {address!r}"
            )
        self._resolve = None if isinstance(address, str) else address
        self.address = address if isinstance(address, str) else ""
        self.server = name or ""
        self.labels = [self.label]
        self.server_hello: handshake.ServerHello | None = None
        self.takes_bytes = framing.MAX_BYTES
        self.max_bytes = max_bytes
        self.is_unreachable = False
        self.restart_callbacks: list[Callable[[], object]] = []
        self.idempotent = idempotent
        self.link = link
        self.shares_memory = self._may_share_memory()
        self.made_in = (
            inprocess.this_process() if self.address.startswith(network_address.INPROCESS) else None
        )
        self.own_token = token
        self._failure_check = failure_check
        self.fetch_waits = fetch_waits

    @property
    def can_move(self) -> bool:
        """True if a function returns the server's address, which may change."""
        return self._resolve is not None

    @property
    def label(self) -> str:
        """The server's name, as far as the client knows it, for the names of threads."""
        return self.server or self.address or "unknown"

    def locate(self) -> str:
        """Return the server's current address; "" if the address is not known yet.

        Raises what the callable raises, and ValueError for an address of a kind that cannot move.
        """
        if self._resolve is None:
            return self.address
        address: Any = self._resolve()
        if address != self.address:
            if not isinstance(address, str):
                raise TypeError(
                    f"{self._resolve!r} was asked where a server is, and returned {address!r}; "
                    'expected an address, or "" while it is not known'
                )
            if address and address.partition(":")[0] not in _MAY_MOVE:
                raise ValueError(
                    f"{self._resolve!r} returned {address!r} as the address of a server. A "
                    "server that moves has to be at unix: or tcp: addresses; "
                    "for another one give the client the address itself"
                )
            self.address = address
            self.shares_memory = self._may_share_memory()
        return self.address

    def _may_share_memory(self) -> bool:
        # A link would not delay what passes through shared memory.
        return (
            segments.IS_SUPPORTED and self.link is None and self.address.startswith(_UNIX_SOCKETS)
        )

    def has_moved_from(self, address: str) -> bool:
        """Return True if the server has moved, or if its callable raises. Connecting reports that error."""
        try:
            return self.can_move and self.locate() != address
        except Exception:
            return True

    def find_token(
        self, address: str | None = None, places: Iterable[tuple[str, int]] = ()
    ) -> bytes:
        """Return the token for this address.

        It is looked up late, because the keyring may get the token after the client was made.
        `places` are pairs of host and port for which a server on this host may have published a token.
        """
        if self.own_token is not None:
            return self.own_token
        address = self.address if address is None else address
        token = keyring.find(address)
        if token:
            return token
        if address.startswith("unix:"):
            return published_token.find_beside(address.removeprefix("unix:"))
        return next(filter(None, (published_token.find(*place) for place in places)), b"")

    @property
    def is_in_another_process(self) -> bool:
        """True if only threads of one process can reach the server, and this is another process."""
        return self.made_in is not None and inprocess.is_in_another_process(
            self.address, self.made_in
        )

    def raise_if_failed(self) -> None:
        """Raise the error that the client's `failure_check` returns, if the server has failed."""
        error = self._failure_check() if self._failure_check is not None else None
        if error is not None:
            raise error

    def __str__(self) -> str:
        return self.describe()

    def describe(self, address: str | None = None) -> str:
        """Return the server's name and address, for errors. `address` is that of the error's connection."""
        address = self.address if address is None else address
        if not address:
            return f"{self.server or 'the server'} (its address is not known yet)"
        return f"{self.server} ({address})" if self.server else f"the server at {address}"
