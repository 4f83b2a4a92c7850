"""A client's way to a server in its own process."""

from __future__ import annotations

import copy
import pickle
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from launchpad.courier import identity
from launchpad.courier.carriers import inprocess
from launchpad.courier.carriers.inprocess import LOST, AwaitedCall
from launchpad.courier.clients.options import Options
from launchpad.courier.clients.peer import NotRun, Peer
from launchpad.courier.errors import NotSent
from launchpad.courier.local.futures import LocalFutures
from launchpad.courier.local.streams import LocalStreams
from launchpad.courier.local.visit import visit
from launchpad.courier.protocol import greeting, wire
from launchpad.courier.servers.methods import LATER, Reply
from launchpad.courier.servers.serving import Serving, serving
from launchpad.courier.values import codec
from launchpad.courier.values.memory import copies
from launchpad.courier.watching import tracing
from launchpad.courier.watching.counts import Counts, MethodCounts

if TYPE_CHECKING:
    from concurrent.futures import Future

    from launchpad.courier.clients.channel import SocketChannel
    from launchpad.courier.servers.house import House
    from launchpad.courier.streams.stream_calls import Settle

_monotonic = time.monotonic
_loads = pickle.loads
_serving = serving.get
_encode_call = codec.encode_call
_RESULT, _NOT_RUN, _STREAM = wire.RESULT, wire.NOT_RUN, wire.STREAM
_LATE, _SMALL = wire.LATE, wire.SMALL


class _Acquaintance:
    """Between all views of one client and the server that it has greeted last, which is not kept."""

    __slots__ = ("incarnation", "name")

    def __init__(self) -> None:
        self.incarnation = b""
        self.name = ""  # by which the server knows us


class LocalChannel:
    """Makes the calls of one client within the process. Safe from any number of threads."""

    def __init__(self, peer: Peer, options: Options) -> None:
        self.peer = peer
        self.options = options
        self.counts = Counts()
        self._address = peer.address
        self._timeout_s = options.timeout_s
        self._trace = b""
        self._futures = LocalFutures(peer)
        self._streams = LocalStreams(peer, self.counts)
        self._acquaintance = _Acquaintance()

    @property
    def n_connections(self) -> int:
        """Those of streams; other calls need none."""
        return self._streams.n_connections

    def with_options(self, options: Options) -> LocalChannel:
        """The same server, other options."""
        view = copy.copy(self)
        view.options = options
        view._timeout_s = options.timeout_s
        return view

    def with_trace(self, trace: bytes) -> LocalChannel:
        """For one call: it says which span it belongs to."""
        view = copy.copy(self)
        view._trace = trace
        return view

    def call(self, method: bytes, /, *args: Any, **kwargs: Any) -> Any:
        """Calls and waits for the answer, which this very thread may have to find."""
        if (spans := tracing.spans) is not None and not self._trace:
            return spans.call(self, method, args, kwargs)
        counts = self.counts[method]
        began = _monotonic()
        body, views = _encode_call(args, kwargs)
        if views is None:
            return self.by_socket().call(method, *args, **kwargs)
        n_in, n_out = 0, len(body)
        buffers: Sequence[wire.Chunk] = ()
        if views or n_out > _SMALL:
            n_out = wire.size(body, views)
            self.peer.check_size(method, n_out)
            buffers = copies(views)
        counts.started += 1
        try:
            reply = self._visit(method, body, buffers)
            if reply is None or self._may_repeat(method, reply):
                reply = self._hop(method, body, buffers, n_out, began)
            kind, result, arrived = reply
            n_in = wire.size(result, arrived) if arrived else len(result)
            if kind == _RESULT and not arrived:
                try:
                    return _loads(result)
                except Exception:  # the long way says more about it
                    pass
            return self.open_reply(method, reply)
        except BaseException:
            counts.errors += 1
            raise
        finally:
            # As `counts.finish`: a call of it would cost as much again.
            took_s = _monotonic() - began
            bucket = int(took_s * 1e6).bit_length()
            counts.total_s += took_s
            counts.bytes_in += n_in
            counts.bytes_out += n_out
            counts.buckets[bucket] += 1

    def submit(self, method: bytes, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Calls without waiting."""
        if (spans := tracing.spans) is not None and not self._trace:
            return spans.submit(self, method, args, kwargs)
        return self._futures.submit(self, method, args, kwargs)

    def close(self) -> None:
        """Futures in flight end with an error."""
        self._futures.close()
        self._streams.close()

    def greet(self) -> House | None:
        """The server, which knows us now; None when none is up. Refused if it does not want us."""
        house = inprocess.find(self._address)
        if house is None:
            return None
        if house.is_inherited:
            raise NotSent(
                f"{self.peer} serves in the process that this one was forked from, and in-process calls "
                "end there. Use a unix: address, or start a server after the fork.",
                server=self.peer.server,
                address=self._address,
            )
        if house.incarnation is not self._acquaintance.incarnation:
            self._introduce(house)
        return house

    def new_serving(self, began: float) -> Serving | None:
        """What a method that is called now shall know of its call; None if there is nothing to know."""
        deadline = None if self._timeout_s is None else began + self._timeout_s
        outer = _serving()
        if outer is not None:
            deadline = outer.limit(deadline)
        return Serving(deadline, self._trace) if deadline is not None or self._trace else None

    def count_at(self, house: House, method: bytes) -> MethodCounts:
        """Where the server counts our calls of a method."""
        name = self._acquaintance.name
        return (house.counts.get(name) or house.counts.of(name))[method]

    def open_reply(self, method: bytes, reply: Reply) -> Any:
        """The value that a reply carries, or raises what it says. NotRun if it may be tried again."""
        kind, body, buffers = reply
        if kind == LOST and body == _LATE:
            raise self.peer.late(method, self.options)
        if self._may_repeat(method, reply):
            raise NotRun
        if kind == LOST:
            raise self.peer.lost(method)
        if kind == _STREAM:
            return self._streams.attach(self.by_socket(), method, body)
        return self.peer.open_reply(method, self.options, (kind, 0, b"", body, buffers, 0, b""))

    def attach_apart(self, method: bytes, ticket: bytes, settle: Settle) -> None:
        """Fetches the stream that the call of a future was answered with."""
        self._streams.attach_apart(self.by_socket(), method, ticket, settle)

    def by_socket(self) -> SocketChannel:
        """The same server and options, for calls with streams."""
        self.greet()  # which knows of servers that cannot be reached from here
        return self._streams.channel(self.options, self._trace)

    def _visit(self, method: bytes, body: bytes, buffers: Sequence[wire.Chunk]) -> Reply | None:
        """The reply to a call that is made in this thread; None when it cannot be."""
        house = inprocess.find(self._address)
        if (
            house is None
            or method not in house.paces.quick
            or house.is_stopping
            or house.incarnation is not self._acquaintance.incarnation
            or self._timeout_s is not None
            or self._trace
            or _serving() is not None
        ):
            return None
        counts = self.count_at(house, method)
        reply = visit(house, counts, method, body, buffers, self.peer.max_bytes)
        if reply is not None and reply[0] == LATER:
            call: AwaitedCall = reply[1]
            return call.wait(self.peer)
        return reply

    def _hop(
        self, method: bytes, body: bytes, buffers: Sequence[wire.Chunk], n_out: int, began: float
    ) -> Reply:
        """The reply to a call that a thread of the server's runs, however long that is not up."""
        on_behalf_of = self.new_serving(began)
        deadline = None if on_behalf_of is None else on_behalf_of.deadline

        def try_to_enter(_: float | None) -> AwaitedCall | None:
            house = self.greet()
            if house is None:
                return None
            if n_out > _SMALL:
                self.peer.check_size(method, n_out)
            counts = self.count_at(house, method)
            call = AwaitedCall(method, body, buffers, self.peer.max_bytes, counts, on_behalf_of)
            return call if call.enter(house) else None

        while True:
            call = self.peer.wait_for(try_to_enter, method, self.options, deadline)
            reply = call.wait(self.peer)
            if (reply[0] != _NOT_RUN or reply[1] == _LATE) and not self._may_repeat(method, reply):
                return reply

    def _may_repeat(self, method: bytes, reply: Reply) -> bool:
        """Whether a call that was lost is made again; raises the verdict if there is no point in that."""
        kind, body, _ = reply
        if kind != LOST or body == _LATE or not self.peer.may_repeat(method, self.options):
            return False
        self.peer.raise_verdict()
        return True

    def _introduce(self, house: House) -> None:
        import hmac

        matches = hmac.compare_digest(house.token, self.peer.token)
        verdict = greeting.WELCOME if matches else greeting.BAD_TOKEN
        self.peer.check_welcome(
            greeting.Welcome(
                greeting.VERSION, verdict, house.incarnation, house.name, house.max_bytes
            )
        )
        self._acquaintance.name = identity.name()
        self._acquaintance.incarnation = house.incarnation
