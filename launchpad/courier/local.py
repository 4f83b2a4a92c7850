"""A client's way to a server in its own process."""

from __future__ import annotations

import copy
import pickle
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from launchpad.courier import codec, greeting, identity, wire
from launchpad.courier.carriers import inprocess
from launchpad.courier.carriers.inprocess import LOST, AwaitedCall
from launchpad.courier.counts import Counts, MethodCounts
from launchpad.courier.errors import NotSent
from launchpad.courier.local_futures import LocalFutures
from launchpad.courier.memory import copies
from launchpad.courier.methods import LATER, Reply
from launchpad.courier.options import Options
from launchpad.courier.peer import Peer
from launchpad.courier.serving import Serving, serving
from launchpad.courier.visit import visit

if TYPE_CHECKING:
    from concurrent.futures import Future

    from launchpad.courier.house import House

_monotonic = time.monotonic
_loads = pickle.loads
_serving = serving.get
_encode_call = codec.encode_call
_RESULT, _NOT_RUN, _LATE, _SMALL = wire.RESULT, wire.NOT_RUN, wire.LATE, wire.SMALL


class LocalChannel:
    """Makes the calls of one client within the process. Safe from any number of threads."""

    def __init__(self, peer: Peer, options: Options) -> None:
        self.peer = peer
        self.options = options
        self.counts = Counts()
        self._address = peer.address
        self._timeout_s = options.timeout_s
        self._futures = LocalFutures(peer)
        self._greeted = b""  # the incarnation of the server that knows us
        self._name = ""  # under which it does

    @property
    def n_connections(self) -> int:
        """None are needed."""
        return 0

    def with_options(self, options: Options) -> LocalChannel:
        """The same server, other options."""
        view = copy.copy(self)
        view.options = options
        view._timeout_s = options.timeout_s
        return view

    def call(self, method: bytes, /, *args: Any, **kwargs: Any) -> Any:
        """Calls and waits for the answer, which this very thread may have to find."""
        counts = self.counts[method]
        began = _monotonic()
        counts.started += 1
        n_in = n_out = 0
        try:
            body, views = _encode_call(args, kwargs)
            n_out = len(body)
            buffers: Sequence[wire.Chunk] = ()
            if views or n_out > _SMALL:
                n_out += sum(view.nbytes for view in views)
                self.peer.check_size(method, n_out)
                buffers = copies(views)
            reply = self._visit(method, body, buffers)
            if reply is None:
                reply = self._hop(method, body, buffers, n_out, began)
            kind, result, arrived = reply
            n_in = len(result)
            if arrived:
                n_in += sum(map(len, arrived))
            elif kind == _RESULT:
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
        return self._futures.submit(self, method, args, kwargs)

    def close(self) -> None:
        """Futures in flight end with an error."""
        self._futures.close()

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
        if house.incarnation is not self._greeted:
            self._introduce(house)
        return house

    def new_serving(self, began: float) -> Serving | None:
        """What a method that is called now shall know: the deadline, and what we serve ourselves."""
        deadline = None if self._timeout_s is None else began + self._timeout_s
        outer = _serving()
        if outer is not None:
            return Serving(outer.limit(deadline), outer.trace)
        return None if deadline is None else Serving(deadline)

    def count_at(self, house: House, method: bytes) -> MethodCounts:
        """Where the server counts our calls of a method."""
        return (house.counts.get(self._name) or house.counts.of(self._name))[method]

    def open_reply(self, method: bytes, reply: Reply) -> Any:
        """The value that a reply carries, or raises what it says. NotRun if it may be tried again."""
        kind, body, buffers = reply
        if kind == LOST and body == _LATE:
            raise self.peer.late(method, self.options)
        if kind == LOST:
            raise self.peer.lost(method)
        return self.peer.open_reply(method, self.options, (kind, 0, b"", body, buffers, 0, b""))

    def _visit(self, method: bytes, body: bytes, buffers: Sequence[wire.Chunk]) -> Reply | None:
        """The reply to a call that is made in this thread; None when it cannot be."""
        house = inprocess.find(self._address)
        if (
            house is None
            or method not in house.paces.quick
            or house.is_stopping
            or house.incarnation is not self._greeted
            or self._timeout_s is not None
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
            if reply[0] != _NOT_RUN or reply[1] == _LATE:
                return reply

    def _introduce(self, house: House) -> None:
        import hmac

        matches = hmac.compare_digest(house.token, self.peer.token)
        verdict = greeting.WELCOME if matches else greeting.BAD_TOKEN
        self.peer.check_welcome(
            greeting.Welcome(
                greeting.VERSION, verdict, house.incarnation, house.name, house.max_bytes
            )
        )
        self._name = identity.name()
        self._greeted = house.incarnation
