"""A client's way to a server in its own process."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from launchpad.courier import call_stack, caller
from launchpad.courier.buffers import copies
from launchpad.courier.call_stack import CallContext
from launchpad.courier.caller import Peer
from launchpad.courier.client.channel import Channel, SocketChannel
from launchpad.courier.client.remote_server import Options, RemoteServer
from launchpad.courier.client.retry import NotRun
from launchpad.courier.codec import pickling
from launchpad.courier.errors import Refused
from launchpad.courier.inprocess.call import InprocessCall
from launchpad.courier.inprocess.futures import InprocessFutures
from launchpad.courier.protocol import framing, handshake
from launchpad.courier.server import inprocess_addresses
from launchpad.courier.server.replies import LOST, Reply
from launchpad.courier.telemetry import tracing

if TYPE_CHECKING:
    from concurrent.futures import Future

    from launchpad.courier.server.core import ServerCore

_here = call_stack.here


class InprocessChannel(Channel):
    """Calls within the process: on a thread of the server's."""

    def __init__(self, peer: RemoteServer, options: Options) -> None:
        super().__init__(peer, options)
        self._futures = InprocessFutures(peer)
        self._sockets = SocketChannel(peer, options, self.counts)  # opens none before it is needed
        # The process in which its server is, or will be.
        self.made_in = inprocess_addresses.process_id()
        # What this process is at the server, by the server's incarnation.
        self._known_as: dict[bytes, Peer] = {}

    @property
    def n_connections(self) -> int:
        """Those of streams; other calls need none."""
        return self._sockets.n_connections

    def call(self, method: bytes, /, *args: Any, **kwargs: Any) -> Any:
        if (spans := tracing.spans) is not None and not self.trace_header:
            return spans.call(self, method, args, kwargs)
        peer, counts = self.peer, self.counts[method]
        began = time.monotonic()
        body, views = pickling.encode_call(args, kwargs)
        if views is None or peer.link is not None:
            return self.by_socket().call(method, *args, **kwargs)
        n_in, n_out = 0, framing.size(body, views)
        peer.check_size(method, n_out)
        buffers: Sequence[framing.Chunk] = copies(views) if views else ()
        call_context = self.new_context(began)
        deadline = None if call_context is None else call_context.deadline

        def try_to_enqueue(_: float | None) -> InprocessCall | None:
            call = InprocessCall(method, body, buffers, peer.max_bytes, call_context)
            return call if self.enqueue(call) else None

        counts.started += 1
        record = _here.record
        outer = record.innermost
        try:
            record.innermost = outer, None, peer, method
            while True:
                call = peer.wait_for(try_to_enqueue, method, self.options, deadline)
                reply = call.wait(peer)
                n_in = framing.size(reply[1], reply[2])
                try:
                    return self.decode_reply(method, reply)
                except NotRun:
                    pass
        except BaseException:
            counts.errors += 1
            raise
        finally:
            record.innermost = outer
            counts.finish(time.monotonic() - began, n_in, n_out)

    def _submit(self, method: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Future[Any]:
        return self._futures.submit(self, method, args, kwargs)

    def close(self) -> None:
        self._futures.close()
        self._sockets.close()

    def enqueue(self, call: InprocessCall) -> bool:
        """Gives a call to the server; False when none is up. Refused if it has another token."""
        core = self._run_handshake()
        if core is None:
            return False
        self.peer.check_size(call.method, call.size)
        peer = self._known_as.get(core.incarnation) or caller.own_peer()
        counts = core.counts.get(peer.name) or core.counts.of(peer.name)
        return call.enqueue(core, peer, counts[call.method])

    def new_context(self, began: float) -> CallContext | None:
        """The deadline, trace and number of a call that begins now; None if it has none of them."""
        deadline = self.options.find_deadline(began)
        if deadline is None and not self.trace_header:
            return None
        return CallContext(deadline, self.trace, self.number)

    def decode_reply(self, method: bytes, reply: Reply) -> Any:
        """The value that a reply carries, or raises its error; NotRun if the call may be made again."""
        kind, body, buffers = reply
        if kind == framing.STREAM:
            from launchpad.courier.client.stream_calls import attach

            return attach(self.by_socket(), method, body)
        if kind != LOST:
            return self.peer.decode_reply(
                method, self.options, (kind, 0, b"", body, buffers, 0, b"")
            )
        if body == framing.LATE:
            raise self.peer.late(method, self.options)
        if self.peer.may_repeat(method, self.options):
            self.peer.raise_if_failed()
            raise NotRun
        raise self.peer.lost(method)

    def by_socket(self) -> SocketChannel:
        """The same server and options, for calls with streams or through a link."""
        self._run_handshake()  # raises where the server cannot be reached from here
        channel = self._sockets.with_options(self.options)
        channel.trace, channel.number = self.trace, self.number
        channel.trace_header = self.trace_header
        return channel

    def _run_handshake(self) -> ServerCore | None:
        """The server, after a handshake with it; None when none is up. Refused if it has another token."""
        core = inprocess_addresses.find(self.peer.address)
        if core is None and self.made_in == inprocess_addresses.process_id():
            return None
        if core is None or core.is_inherited:
            raise Refused(
                f"{self.peer} is reached by threads of its own process alone: the one in which the client "
                f"was made (pid {self.made_in[0]}). This is another (pid {os.getpid()}). Give the server a "
                "unix: address, or a tcp: one for other hosts; or launch the program as processes.",
                server=self.peer.server,
                address=self.peer.address,
            )
        if core.incarnation in self._known_as:
            return core
        import hmac

        matches = core.trusts_this_user or hmac.compare_digest(core.token, self.peer.find_token())
        verdict = handshake.ACCEPTED if matches else handshake.BAD_TOKEN
        self.peer.check_server_hello(
            handshake.ServerHello(
                handshake.VERSION, verdict, core.incarnation, core.name, core.max_bytes
            )
        )
        self._known_as.clear()  # not another dict: `with_options` shares it
        self._known_as[core.incarnation] = caller.own_peer()
        return core
