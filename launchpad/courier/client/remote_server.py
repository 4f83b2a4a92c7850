"""The server as its clients see it: where it is, whether it is up, what its answers mean.

The same for every transport. One client has one `RemoteServer`, whatever options its calls have.
"""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from launchpad.courier import call_deadlock, call_stack
from launchpad.courier.call_stack import Edge, current_call
from launchpad.courier.client import retry
from launchpad.courier.client.retry import NotRun, next_pause
from launchpad.courier.codec import compression, pickling
from launchpad.courier.errors import (
    DeadlineExceeded,
    MessageTooLarge,
    NotSent,
    OutcomeUnknown,
    ProtocolError,
    Refused,
    StreamBroken,
)
from launchpad.courier.light_dataclass import dataclass
from launchpad.courier.protocol import framing, handshake
from launchpad.courier.security import keyring, published_token
from launchpad.courier.shm import segments
from launchpad.courier.telemetry.counters import warn
from launchpad.courier.transport.link import Link

R = TypeVar("R")

_MAY_MOVE = frozenset({"unix", "tcp", "tcp+plaintext"})

STOPPED_AFTER_S = 2.0
DEADLOCK_AFTER_S = 10.0


@dataclass(frozen=True)
class Options:
    """How a client makes its calls: what `client.with_options(…)` changes.

    Attributes:
        timeout_s: seconds that a call may take, waiting for the server included; None, as math.inf, is no
            limit.
        wait_for_ready: a call made before the server is up waits for it.
        idempotent: a call may run twice, so that courier may repeat it when its outcome is unknown.
        compress: arguments and results are compressed on the way; for slow networks.
    """

    timeout_s: float | None = None
    wait_for_ready: bool = True
    idempotent: bool = False
    compress: bool = False

    def __post_init__(self) -> None:
        given: Any = self.timeout_s
        if isinstance(given, datetime.timedelta):
            given = given.total_seconds()
        elif not isinstance(given, int | float | None):
            raise TypeError(f"a timeout is in seconds, or a timedelta, not {given!r}")
        if given is not None and not given > 0:
            raise ValueError(
                f"a timeout is in seconds and positive, not {given!r}; None is no limit"
            )
        if given is not None and given >= threading.TIMEOUT_MAX:
            given = None  # no clock counts as far, least of all to math.inf
        object.__setattr__(self, "timeout_s", given)

    def find_deadline(self, began: float) -> float | None:
        """When a call is late that began then: by its timeout, or by the call that it is made for."""
        deadline = None if self.timeout_s is None else began + self.timeout_s
        call_context = current_call.get()
        return deadline if call_context is None else call_context.limit(deadline)


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
        name: str | None,
        token: bytes | None,
        failure_check: Callable[[], Exception | None] | None,
        max_bytes: int,
        idempotent: frozenset[bytes],
        fetch_waits: Callable[[str, bytes | None], list[Edge]],
        link: Link | None = None,
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
        #: Its label, for what outlives this object.
        self.labels = [self.label]
        self.server_hello: handshake.ServerHello | None = None  # the last one
        self.takes_bytes = framing.MAX_BYTES  # at once, as far as it is known
        self.max_bytes = max_bytes
        self.restart_callbacks: list[Callable[[], object]] = []
        self.idempotent = idempotent
        self.link = link
        #: Both ends are on one host, and files can be sent from one to the other.
        self.shares_memory = self._may_share_memory()
        self.own_token = token  # None: the keyring has it
        self._failure_check = failure_check
        #: Asks any server, at an address, with a token, which calls wait there for others.
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
            self.shares_memory = self._may_share_memory()
        return self.address

    def _may_share_memory(self) -> bool:
        # What passes through shared memory would not be held up by a link.
        return segments.IS_SUPPORTED and self.link is None and self.address.startswith("unix:")

    def has_moved_from(self, address: str) -> bool:
        """Whether it is at another address now. What the callable raises, the next connect does."""
        try:
            return self.can_move and self.locate() != address
        except Exception:
            return True

    def may_repeat(self, method: bytes, options: Options) -> bool:
        """Whether a call may run twice: by the options of its caller, or as its class has declared."""
        return options.idempotent or method in self.idempotent

    def find_token(
        self, address: str | None = None, places: Iterable[tuple[str, int]] = ()
    ) -> bytes:
        """The token for that address, looked up late: a client may be made before the keyring has it.

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

    def wait_for(
        self,
        attempt: Callable[[float | None], R | None],
        method: bytes,
        options: Options,
        deadline: float | None,
    ) -> R:
        """Repeats `attempt(seconds left)` until it returns something, with short pauses between.

        Raises what ends the wait: the client's `failure_check`, the deadline, or NotSent at once for a
        client with wait_for_ready=False.
        """
        pause_s = 0.0
        while (found := attempt(self.time_left(method, options, deadline))) is None:
            pause_s = self.pause(pause_s, method, options, deadline)
        return found

    def pause(
        self, pause_s: float, method: bytes, options: Options, deadline: float | None
    ) -> float:
        """Waits before the next attempt, after a pause of `pause_s`; returns for how long."""
        self.check_wait(method, options)
        left = self.time_left(method, options, deadline)
        pause_s = next_pause(pause_s)
        retry.pause(self.address, pause_s if left is None else min(pause_s, left))
        return pause_s

    def check_wait(self, method: bytes, options: Options) -> None:
        """Raises if there is no point in waiting for a server that is not up."""
        self.raise_if_failed()
        if not options.wait_for_ready:
            raise NotSent(
                f"{self} is not up, so {method.decode()!r} was not called. "
                "Start it first, or use wait_for_ready=True.",
                **self.where(method),
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
        if n_bytes > (limit := self.takes_bytes):
            raise MessageTooLarge(
                f"the arguments of {method.decode()!r} are {n_bytes} bytes, and {self} takes {limit} at "
                "once. Send them in several calls, or give the server a larger max_bytes.",
                **self.where(method),
            )

    def check_server_hello(self, server_hello: handshake.ServerHello) -> None:
        """Takes the server's part of the handshake; Refused if the server refuses the client."""
        known, self.server_hello = self.server_hello, server_hello
        self.takes_bytes = server_hello.max_bytes
        self.server = server_hello.server or self.server
        self.labels[0] = self.label
        if server_hello.status == handshake.BAD_TOKEN:
            raise self.wrong_token()
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

    def wrong_token(self) -> Refused:
        what = "it is another one" if self.find_token() else "no token was found for this address"
        return self.refuse(
            f"{self} refused our token ({what}). Give the client the server's, which is its `token`:"
            " Client(address, token=…), or add it to the keyring under this address. Only clients of the"
            " server's user on its host find it by themselves. A process that a worker has started gets"
            " it from the worker, which has it: courier.keyring.find(address)."
        )

    def refuse(self, message: str) -> Refused:
        return Refused(message, **self.where(b""))

    def decode_reply(self, method: bytes, options: Options, reply: framing.Fields) -> Any:
        """The value that a reply carries, or raises the exception that it carries."""
        kind, _, _, body, buffers, _, header_data = reply
        if header_data:
            headers = framing.decode_headers(header_data)
            body, buffers = compression.unpack_if_packed(headers, body, buffers, self.max_bytes)
        if kind == framing.RESULT:
            try:
                return pickling.loads(body, buffers)
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

    def late(self, method: bytes, options: Options, *, in_stream: bool = False) -> DeadlineExceeded:
        """The error of a call past its deadline; with `in_stream`, of the wait for an item."""
        limit = f"within {options.timeout_s} s"
        if options.timeout_s is None:
            reason = "waited for it" if in_stream else "it was made for"
            limit = f"before the deadline of the call that {reason}"
        return DeadlineExceeded(
            f"the stream {method.decode()!r} of {self} had no item {limit}. It is open still: go on "
            "waiting for one, or close it."
            if in_stream
            else f"{method.decode()!r} of {self} did not answer {limit}. "
            "It may have run, or be running still.",
            **self.where(method),
        )

    def lost(
        self, method: bytes, address: str | None = None, n_items: int | None = None
    ) -> Exception:
        """What to raise when the connection, to that address, ended with this call in flight.

        With `n_items`, it ended in the middle of a stream, after so many of them.
        """
        try:
            self.raise_if_failed()
        except Exception as failure:
            return failure
        kind = OutcomeUnknown
        when = f"while {method.decode()!r} was in flight: it may have run"
        if n_items is not None:
            kind = StreamBroken
            when = f"in the middle of the stream {method.decode()!r}, after {n_items} items"
        return kind(
            f"the connection to {self.describe(address)} ended {when}. "
            "Call it again only if it may run twice.",
            **self.where(method, address),
        )

    def not_taken(self, method: bytes, error: Exception) -> NotSent:
        return NotSent(
            f"{self} did not take the call of {method.decode()!r}, which has not run: {error}",
            **self.where(method),
        )

    def out_of_descriptors(self, method: bytes = b"") -> NotSent:
        return NotSent(
            f"this process has no file descriptor left for a connection to {self}: the call was not sent."
            " Close streams, clients and files that are not needed, or raise the limit (`ulimit -n`)",
            **self.where(method),
        )

    def closed(self, method: bytes) -> NotSent:
        return NotSent(
            f"the client of {self} was closed before {method.decode()!r} was sent",
            **self.where(method),
        )

    def __str__(self) -> str:
        return self.describe()

    def describe(self, address: str | None = None) -> str:
        """Its name and address in errors; `address` is that of the connection that an error is about."""
        address = self.address if address is None else address
        if not address:
            return f"{self.server or 'the server'} (its address is not known yet)"
        return f"{self.server} ({address})" if self.server else f"the server at {address}"

    def where(self, method: bytes, address: str | None = None) -> dict[str, str]:
        """The attributes of an error about a call of this method."""
        address = self.address if address is None else address
        return {"server": self.server, "address": address, "method": method.decode()}


class SlowCallWatchdog:
    """One call that waits: looks for a reason, and logs it, once. `check` is called about every second.

        after 2 s    is the server's process stopped (SIGSTOP, a debugger)?  The kernel is asked.
        after 10 s   do calls wait for each other?  A deadlock is found and logged (call_deadlock.py).

    Neither ends the call: a stopped process may go on, and a deadlock may be broken by a deadline. A
    method that merely takes long, or holds the GIL, gives no reason. Without `may_ask` it looks for no
    deadlock, since asking other servers takes time.
    """

    def __init__(self, peer: RemoteServer, method: bytes, *, may_ask: bool = True) -> None:
        self._peer = peer
        self._method = method.decode()
        self._began = time.monotonic()
        self._reported_stopped, self._checked_deadlock = False, not may_ask

    def check(self) -> None:
        """Warns of what it finds, through `logging`, as `launchpad.courier`."""
        waited_s = time.monotonic() - self._began
        if waited_s > STOPPED_AFTER_S and not self._reported_stopped:
            server_hello, state = self._peer.server_hello, ""
            if server_hello and server_hello.boot_id == handshake.boot_id() and server_hello.pid:
                try:
                    status = Path(f"/proc/{server_hello.pid}/stat").read_text()
                    state = status.rpartition(")")[2].split()[0]  # its name may contain anything
                except OSError:
                    pass
                if state and state in "Tt":
                    self._reported_stopped = True
                    warn(
                        f"{self._peer} does not answer {self._method!r}: its process {server_hello.pid}"
                        " is stopped (by SIGSTOP, Ctrl-Z or a debugger)."
                        f" `kill -CONT {server_hello.pid}` lets it go on."
                    )
        if waited_s > DEADLOCK_AFTER_S and not self._checked_deadlock:
            self._checked_deadlock = call_deadlock.detect(
                call_stack.find_waits(call_stack.here.record)
            )
