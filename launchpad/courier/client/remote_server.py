"""The server as its clients see it: where it is, whether it is up, what its answers mean.

The same for every transport. One client has one `RemoteServer`, whatever options its calls have.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from typing import Any, TypeVar

from launchpad.courier.call_stack import Edge
from launchpad.courier.client.options import Options
from launchpad.courier.codec import compression, pickling
from launchpad.courier.errors import (
    CourierError,
    DeadlineExceeded,
    MessageTooLarge,
    NotSent,
    OutcomeUnknown,
    ProtocolError,
    Refused,
    StreamBroken,
)
from launchpad.courier.protocol import framing, handshake
from launchpad.courier.security import keyring
from launchpad.courier.shm import segments

R = TypeVar("R")

_loads = pickle.loads

_FIRST_PAUSE_S = 0.001
_LONG_PAUSE_S = 0.02
_LAST_PAUSE_S = 0.05  # the most that a server which has just come up goes unnoticed
_MAY_MOVE = frozenset({"unix", "tcp", "tcp+plaintext"})
MAX_TRIES = 3  # of a request that a fresh connection did not take


class NotRun(Exception):
    """The server answers that this call has not run and will not: the caller may make it again."""


class RemoteServer:
    """One server: where it is, what is known about it, and the errors that speak of it.

    It is at one address for good; or it can move, and a function returns where it is. Then `locate` is
    called before each connection is made or used, and what belongs to a connection is looked up under
    the address that it was made to. Safe from any thread.
    """

    def __init__(
        self,
        address: str | Callable[[], str],
        *,
        name: str | None = None,
        token: bytes | None = None,
        verdict: Callable[[], Exception | None] | None = None,
        max_bytes: int = framing.MAX_BYTES,
        idempotent: frozenset[bytes] = frozenset(),
        fetch_waits: Callable[[str, bytes | None], list[Edge]],
    ) -> None:
        self._resolve = None if isinstance(address, str) else address
        if not isinstance(address, str) and not callable(address):
            raise TypeError(
                f"a client's address is a str, or a callable that returns one, not {address!r}"
            )
        self.can_move = self._resolve is not None
        #: Where it was when that was asked last; "" if that was not known so far.
        self.address = address if isinstance(address, str) else ""
        self.began = time.monotonic()
        self.server = name or ""  # until the handshake says what it calls itself
        self.server_hello: handshake.ServerHello | None = None  # the last one
        self.max_bytes = max_bytes
        self.restart_callbacks: list[Callable[[], object]] = []
        self.idempotent = idempotent
        #: Both ends are on one host, and files can be sent from one to the other.
        self.shares_memory = _may_share_memory(self.address)
        self.own_token = token  # None: the keyring has it
        self._failure_check = verdict
        #: Asks any server, given its address and token, which calls wait there for others.
        self.fetch_waits = fetch_waits

    @property
    def label(self) -> str:
        """Its name as far as it is known, for the names of threads."""
        return self.server or self.address or "unknown"

    def locate(self) -> str:
        """Where it is now; "" if that is not known yet.

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
            self.shares_memory = _may_share_memory(address)
        return self.address

    def has_moved_from(self, address: str) -> bool:
        """Whether it is at another address now.

        Never raises what the callable raises: the next attempt to connect does.
        """
        try:
            return self.can_move and self.locate() != address
        except Exception:
            return True

    def find_token(self, address: str | None = None) -> bytes:
        """The token for that address, looked up late: a client may be made before the keyring has it."""
        if self.own_token is not None:
            return self.own_token
        return keyring.find(self.address if address is None else address)

    @property
    def takes_bytes(self) -> int:
        """The most that the server takes at once, as far as it is known."""
        return self.server_hello.max_bytes if self.server_hello is not None else framing.MAX_BYTES

    def wait_for(
        self,
        attempt: Callable[[float | None], R | None],
        method: bytes,
        options: Options,
        deadline: float | None,
    ) -> R:
        """Repeats `attempt(seconds left)` until it returns something, with short pauses between.

        Raises what ends the wait: the supervisor's verdict, the deadline, or NotSent at once for a
        client with wait_for_ready=False.
        """
        pause_s = _FIRST_PAUSE_S
        while (found := attempt(self.time_left(method, options, deadline))) is None:
            self.check_wait(method, options)
            left = self.time_left(method, options, deadline)
            time.sleep(pause_s if left is None else min(pause_s, left))
            pause_s = next_pause(pause_s)
        return found

    def check_wait(self, method: bytes, options: Options) -> None:
        """Raises if there is no point in waiting for a server that is not up."""
        self.raise_if_failed()
        if not options.wait_for_ready:
            raise NotSent(
                f"{self} is not up, so {method.decode()!r} was not called. "
                "Start it first, or use wait_for_ready=True.",
                **self._where(method),
            )

    def raise_if_failed(self) -> None:
        error = self._failure_check() if self._failure_check is not None else None
        if error is not None:
            raise error

    def time_left(self, method: bytes, options: Options, deadline: float | None) -> float | None:
        """Seconds until the deadline, None without one; raises DeadlineExceeded past it."""
        if deadline is None:
            return None
        left = deadline - time.monotonic()
        if left <= 0:
            raise self.late(method, options)
        return left

    def check_size(self, method: bytes, n_bytes: int) -> None:
        """MessageTooLarge for arguments that the server would not take."""
        limit = self.takes_bytes
        if n_bytes > limit:
            raise MessageTooLarge(
                f"the arguments of {method.decode()!r} are {n_bytes} bytes, and {self} takes {limit} at "
                "once. Send them in several calls, or give the server a larger max_bytes.",
                **self._where(method),
            )

    def check_server_hello(self, server_hello: handshake.ServerHello) -> None:
        """Takes the server's part of the handshake; Refused if the server refuses the client."""
        known, self.server_hello = self.server_hello, server_hello
        self.server = server_hello.server or self.server
        if server_hello.status == handshake.BAD_TOKEN:
            what = (
                "no token was found for this address"
                if not self.find_token()
                else "it is another one"
            )
            raise self.refuse(
                f"{self} refused our token ({what}). Give the client the server's token, or add it "
                "to the keyring under this address."
            )
        if server_hello.status != handshake.ACCEPTED or server_hello.version != handshake.VERSION:
            raise self.refuse(
                f"{self} speaks version {server_hello.version} of the protocol, we speak"
                f" {handshake.VERSION}. Run the same release of launchpad on both sides."
            )
        if server_hello.boot_id != handshake.boot_id():
            self.shares_memory = False  # a socket that is forwarded from another host
        if known is not None and known.incarnation != server_hello.incarnation:
            for callback in tuple(self.restart_callbacks):
                callback()

    def may_repeat(self, method: bytes, options: Options) -> bool:
        """Whether a call may run twice, as its caller or its class has declared."""
        return options.idempotent or method in self.idempotent

    def refuse(self, message: str) -> Refused:
        return Refused(message, **self._where(b""))

    def decode_reply(self, method: bytes, options: Options, reply: framing.Fields) -> Any:
        """The value that a reply carries, or raises the exception that it carries."""
        kind, _, _, body, buffers, _, header_data = reply
        if header_data:
            header = framing.decode_headers(header_data).get(framing.COMPRESSED)
            if header is not None:
                body, buffers = compression.unpack(header, body, buffers, self.max_bytes)
        if kind == framing.RESULT:
            try:
                return _loads(body) if not buffers else _loads(body, buffers=buffers)
            except Exception as error:
                error.add_note(
                    f"(the result of {method.decode()!r}, which has run at {self}, cannot be "
                    "unpickled here: its classes have to be importable on both sides)"
                )
                raise
        if kind == framing.ERROR:
            raise pickling.decode_error(
                body, server=self.server, address=self.address, method=method.decode()
            )
        if kind != framing.NOT_RUN:
            raise ProtocolError(f"{self} answered with a frame of kind {kind}")
        if body == framing.LATE:
            raise self.late(method, options)
        raise NotRun

    def late(self, method: bytes, options: Options) -> DeadlineExceeded:
        limit = _describe_limit(options, "the call that it was made for")
        return DeadlineExceeded(
            f"{method.decode()!r} of {self} did not answer {limit}. "
            "It may have run, or be running still.",
            **self._where(method),
        )

    def late_item(self, method: bytes, options: Options) -> DeadlineExceeded:
        limit = _describe_limit(options, "the call that waited for it")
        return DeadlineExceeded(
            f"the stream {method.decode()!r} of {self} had no item {limit}. It is open still: go on "
            "waiting for one, or close it.",
            **self._where(method),
        )

    def broken(self, method: bytes, n_items: int, address: str | None = None) -> Exception:
        """What to raise when the connection, to that address, ended in the middle of a stream."""
        try:
            self.raise_if_failed()
        except Exception as verdict:
            return verdict
        return StreamBroken(
            f"the connection to {self.describe(address)} ended in the middle of the stream "
            f"{method.decode()!r}, after {n_items} items. Call it again only if it may run twice.",
            **self._where(method, address),
        )

    def closed_stream(self, method: bytes) -> StreamBroken:
        return StreamBroken(
            f"the client of {self} was closed in the middle of the stream {method.decode()!r}",
            **self._where(method),
        )

    def lost(self, method: bytes, address: str | None = None) -> Exception:
        """What to raise when the connection, to that address, ended with this call in flight."""
        try:
            self.raise_if_failed()
        except Exception as verdict:
            return verdict
        return OutcomeUnknown(
            f"the connection to {self.describe(address)} ended while {method.decode()!r} was in "
            "flight: it may have run. Call it again only if it may run twice.",
            **self._where(method, address),
        )

    def not_taken(self, method: bytes, error: Exception) -> NotSent:
        return NotSent(
            f"{self} did not take the call of {method.decode()!r}, which has not run: {error}",
            **self._where(method),
        )

    def closed(self, method: bytes) -> NotSent:
        return NotSent(
            f"the client of {self} was closed before {method.decode()!r} was sent",
            **self._where(method),
        )

    def __str__(self) -> str:
        return self.describe()

    def describe(self, address: str | None = None) -> str:
        """Its name and address in errors; `address` is that of the connection that an error is about."""
        address = self.address if address is None else address
        if not address:
            return f"{self.server or 'the server'} (its address is not known yet)"
        return f"{self.server} ({address})" if self.server else f"the server at {address}"

    def _where(self, method: bytes, address: str | None = None) -> dict[str, str]:
        address = self.address if address is None else address
        return {"server": self.server, "address": address, "method": method.decode()}


def _may_share_memory(address: str) -> bool:
    return segments.IS_SUPPORTED and address.startswith("unix:")


def next_pause(pause_s: float = 0.0) -> float:
    """How long to pause after a pause of `pause_s`; without one, the first pause.

    Short ones first, for a server that is just being started; hundreds of clients that wait for longer
    must not take the processor from servers that start.
    """
    growth = 2.0 if pause_s < _LONG_PAUSE_S else 1.05
    return min(pause_s * growth, _LAST_PAUSE_S) or _FIRST_PAUSE_S


def is_final(error: BaseException) -> bool:
    """An error that no further attempt to connect will cure."""
    return isinstance(error, CourierError | PermissionError)


def _describe_limit(options: Options, call: str) -> str:
    if options.timeout_s is not None:
        return f"within {options.timeout_s} s"
    return f"before the deadline of {call}"
