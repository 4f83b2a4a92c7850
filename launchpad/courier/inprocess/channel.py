"""A client's way to a server in its own process.

Futures are calls that no thread waits for:

submit ──▶ _Entry ──▶ a thread of the server's ──▶ future
            │  ▲
            ▼  │ the server is not up yet, or stops before it has begun the call
          the thread of InprocessFutures
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from launchpad.courier import call_stack, caller, fork
from launchpad.courier.buffers import copies
from launchpad.courier.call_stack import CallContext
from launchpad.courier.caller import Peer
from launchpad.courier.client import call_errors
from launchpad.courier.client.call import (
    NotRun,
    check_wait,
    decode_reply,
    may_repeat,
    next_pause,
    wait_for,
)
from launchpad.courier.client.channel import Channel, SocketChannel
from launchpad.courier.client.connection import check_server_hello
from launchpad.courier.client.options import Options
from launchpad.courier.client.server_info import ServerInfo
from launchpad.courier.codec import pickling
from launchpad.courier.errors import Refused
from launchpad.courier.inprocess.call import InprocessCall
from launchpad.courier.interruptions import Condition, in_another_thread, is_interruption
from launchpad.courier.own_threads import OwnThread
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

    def __init__(self, peer: ServerInfo, options: Options) -> None:
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
        call_errors.check_size(peer, method, n_out)
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
                call = wait_for(try_to_enqueue, peer, method, self.options, deadline)
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
        call_errors.check_size(self.peer, call.method, call.size)
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
            return decode_reply(
                self.peer, method, self.options, (kind, 0, b"", body, buffers, 0, b"")
            )
        if body == framing.LATE:
            raise call_errors.late(self.peer, method, self.options)
        if may_repeat(self.peer, method, self.options):
            self.peer.raise_if_failed()
            raise NotRun
        raise call_errors.lost(self.peer, method)

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
        check_server_hello(
            self.peer,
            handshake.ServerHello(
                handshake.VERSION, verdict, core.incarnation, core.name, core.max_bytes
            ),
        )
        self._known_as.clear()  # not another dict: `with_options` shares it
        self._known_as[core.incarnation] = caller.own_peer()
        return core


class InprocessFutures:
    """The futures of one client, whatever options they have.

    A thread does for them what they cannot do by themselves: wait for a server, watch a deadline. It runs
    while there is something to do.
    """

    def __init__(self, peer: ServerInfo) -> None:
        self._peer = peer
        self.drop_inherited()
        fork.drop_in_child(self)

    def drop_inherited(self) -> None:
        """Has no calls, for a forked child too: they, and the thread, are the parent's."""
        self._changed = Condition()
        self._thread: threading.Thread | None = None  # until it ends, or the client is closed
        self._kept: list[_Entry] = []  # for the thread
        self.entries: set[_Entry] = set()  # whose futures are not done

    def submit(
        self,
        channel: InprocessChannel,
        method: bytes,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Future[Any]:
        """Makes a call with the options of `channel`."""
        body, views = pickling.encode_call(args, kwargs)
        if views is None or channel.peer.link is not None:
            return channel.by_socket().submit(method, *args, **kwargs)
        entry = _Entry(self, channel, method, body, views)
        try:
            with self._changed:
                self.entries.add(entry)
            entry.send()
            if (not entry.is_sent or entry.deadline is not None) and not entry.future.done():
                self.keep(entry)
        except BaseException as error:
            if is_interruption(error):
                entry.future.cancel()  # its future never reached the caller
            raise
        return entry.future

    def keep(self, entry: _Entry) -> None:
        """Retries a call that waits for its server, and ends one at its deadline."""
        in_another_thread(self._keep, entry)

    def _keep(self, entry: _Entry) -> None:
        with self._changed:
            self._kept.append(entry)
            self._changed.notify()
            if self._thread is None:
                name = f"courier-futures-{self._peer.label}"
                thread = OwnThread(target=self._main, name=name)
                thread.start()
                self._thread = thread

    def close(self) -> None:
        """End the calls in flight with an error."""
        with self._changed:
            thread, self._thread = self._thread, None
            self._kept = []
            entries = tuple(self.entries)
            self._changed.notify()
        for entry in entries:
            entry.close()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _main(self) -> None:
        pause_s = next_pause()
        while True:
            with self._changed:
                if self._thread is not threading.current_thread():
                    return
                entries = self._kept = [e for e in self._kept if not e.future.done()]
                if not entries:
                    self._thread = None
                    return
                is_waiting = not all(entry.is_sent for entry in entries)
                deadlines = [e.deadline for e in entries if e.deadline is not None]
                if is_waiting:
                    self._changed.wait(pause_s)
                elif deadlines:
                    self._changed.wait(max(0.0, min(deadlines) - time.monotonic()))
                else:  # sent, and without a deadline: they will be done, and the thread ends
                    self._changed.wait(0.02)
                entries = self._kept.copy()
            pause_s = next_pause(pause_s) if is_waiting else next_pause()
            now = time.monotonic()
            for entry in entries:
                entry.check(now)


class _Entry:
    """A future, and the call that is made for it: again, if the server proves it did not run."""

    def __init__(
        self,
        futures: InprocessFutures,
        channel: InprocessChannel,
        method: bytes,
        body: bytes,
        views: Sequence[memoryview],
    ) -> None:
        from launchpad.courier.client.future import CallFuture

        self._began = time.monotonic()
        self._futures = futures
        self._channel = channel
        self._method = method
        self._body = body
        self._buffers: Sequence[memoryview] = copies(views) if views else ()
        self._n_in, self._n_out = 0, framing.size(body, views)
        self._call_context = channel.new_context(self._began)
        self._call: InprocessCall | None = None
        self.is_sent = False
        self.deadline = self._call_context.deadline if self._call_context is not None else None
        self.future = CallFuture()
        self.future.on_cancel = self._withdraw
        self._counts = channel.counts[method]
        self._counts.started += 1
        self.future.add_done_callback(self._end)

    def send(self) -> None:
        """Hands the call to the server if it is up; an error goes to the future."""
        # First: the call may come back, to be sent again, before `enqueue` returns.
        self.is_sent = True
        limit = self._channel.peer.max_bytes
        call = self._call = InprocessCall(
            self._method, self._body, self._buffers, limit, self._call_context, self._take
        )
        try:
            # From here on a cancel finds the call; one that came before has ended the future.
            if not self.future.done() and not self._channel.enqueue(call):
                self.is_sent = False
        except Exception as error:
            if is_interruption(error):
                raise
            self.future.fail(error)

    def check(self, now: float) -> None:
        """Sends the call if that is still to be done; ends it past its deadline."""
        peer, options = self._channel.peer, self._channel.options
        if not self.is_sent and not self.future.done():
            self.send()
            if not self.is_sent and not self.future.done():
                try:
                    check_wait(peer, self._method, options)
                except Exception as error:
                    self.future.fail(error)
        if self.deadline is not None and self.deadline <= now:
            self.future.fail(call_errors.late(peer, self._method, options))
            self._withdraw()

    def close(self) -> None:
        """Fails the future, as the client is closed: lost if the call has begun, else not sent."""
        peer, call = self._channel.peer, self._call
        has_begun = call is not None and call.has_begun
        make_error = call_errors.lost if has_begun else call_errors.closed
        self.future.fail(make_error(peer, self._method))
        self._withdraw()

    def _take(self, reply: Reply) -> None:
        """Completes the future, in the thread that completes the call."""
        self._n_in = framing.size(reply[1], reply[2])
        if reply[0] == framing.STREAM:
            from launchpad.courier.client.stream_calls import attach, run_in_thread

            channel = self._channel.by_socket()
            run_in_thread(self.future.complete, attach, channel, self._method, reply[1])
            return
        try:
            self.future.complete(lambda: self._channel.decode_reply(self._method, reply))
        except NotRun:
            self.is_sent = False
            self._futures.keep(self)

    def _withdraw(self) -> None:
        call = self._call
        if call is not None:
            call.give_up()

    def _end(self, future: Future[Any]) -> None:
        self._futures.entries.discard(self)
        if future.cancelled():
            self._withdraw()  # the future does so, too, but only after `_call` is gone
        self._call, self._buffers = None, ()  # the future may be kept, and refers to this entry
        if future.cancelled() or future.exception() is not None:
            self._counts.errors += 1
        self._counts.finish(time.monotonic() - self._began, self._n_in, self._n_out)
