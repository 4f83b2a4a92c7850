"""The facts that a client knows of its server: its address, name, token and limits, and its last hello.

It is the same for every transport. One client has one `ServerInfo`, whatever options its calls have.
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
    """One server, as far as a client of it knows. Safe from any thread.

    The server is at one address for good; or it can move, and a function returns where it is. Then `locate`
    is called before each connection is made or used, and what belongs to a connection is looked up under
    the address that it was made to.

    Attributes:
        address: Where it was when that was asked last; "" if that was not known so far.
        server: Its name; the handshake says what it calls itself.
        labels: Its label, in a list that outlives this object.
        server_hello: Its part of the last handshake; None before the first.
        takes_bytes: How much it takes at once, as far as that is known.
        max_bytes: How much the client takes at once.
        restart_callbacks: Called when another process than before answers at its address.
        idempotent: The methods that its class has declared to be so.
        link: What holds up the messages; None in production.
        shares_memory: True if both ends are on one host, and files can be sent from one to the other.
        made_in: The process in which the server is, or will be, if only its own threads reach it.
        own_token: Its token, if the client was given one; else the keyring has it.
        fetch_waits: Asks any server, at an address, with a token, which calls wait there for others.
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
        """True if its address is a function's answer, and may be another one later."""
        return self._resolve is not None

    @property
    def label(self) -> str:
        """Its name as far as it is known, for the names of threads."""
        return self.server or self.address or "unknown"

    def locate(self) -> str:
        """Return where it is now; "" if that is not known yet.

        Raises what the callable raises, and ValueError for an address of a kind that does not move.
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
        # What passes through shared memory would not be held up by a link.
        return (
            segments.IS_SUPPORTED and self.link is None and self.address.startswith(_UNIX_SOCKETS)
        )

    def has_moved_from(self, address: str) -> bool:
        """True if it is at another address now. What the callable raises, the next connect does."""
        try:
            return self.can_move and self.locate() != address
        except Exception:
            return True

    def find_token(
        self, address: str | None = None, places: Iterable[tuple[str, int]] = ()
    ) -> bytes:
        """Return the token for that address, looked up late: a client may be made before the keyring has it.

        `places` are host and port of the server on this host, if it may have published one there.
        """
        if self.own_token is not None:
            return self.own_token
        address = self.address if address is None else address
        if token := keyring.find(address):
            return token
        if address.startswith("unix:"):
            return published_token.find_beside(address.removeprefix("unix:"))
        return next(filter(None, (published_token.find(*place) for place in places)), b"")

    @property
    def is_in_another_process(self) -> bool:
        """True if only threads of a process reach the server, and this is another one."""
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
        """Return its name and address, for errors; those about a connection give its `address`."""
        address = self.address if address is None else address
        if not address:
            return f"{self.server or 'the server'} (its address is not known yet)"
        return f"{self.server} ({address})" if self.server else f"the server at {address}"
