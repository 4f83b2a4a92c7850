"""Streams: calls whose result, or whose arguments, arrive one item after the other.

A call that has streams has its connection to itself until the last of them has ended. Each stream
has a number, which stands in the frames' field for the call id: 0 is the result, 1, 2, … are the
arguments. Who consumes a stream gives credit for it, and who has no credit does not send.

    client                                                         server
    ──────                                                         ──────
    CALL  notes: STREAMS, how many arguments are streams ────────▶  runs the method
      ◀─────────────────── CREDIT 1: it wants items of argument 1
    ITEM 1 · ITEM 1 · … · END 1 ─────────────────────────────────▶
      ◀───────── CANCEL 1: it wants no more of them, nor an END
      ◀──────────────────────── RESULT or ERROR: all is over, or
      ◀──────────────────────────────────── STREAM: an iterator
    CREDIT 0 ────────────────────────────────────────────────────▶  steps it
      ◀────────────────────────────── ITEM 0 · ITEM 0 · … · END 0: all is over

An END has an empty body, or the exception that ended the stream. A connection that ends without
one is an error for whoever waits, never a silent end. To close a stream early the client closes the
connection. A stream is never resumed.

This file is the server's end of one such call. A method whose arguments are streams runs on a
thread of its own, as the session's thread has to read what the method waits for.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING

from launchpad.courier.carriers.sockets import Socket
from launchpad.courier.errors import ProtocolError, StreamBroken
from launchpad.courier.protocol import wire
from launchpad.courier.servers import work
from launchpad.courier.servers.later import Later
from launchpad.courier.servers.methods import Reply
from launchpad.courier.streams.argument_stream import ArgumentStream
from launchpad.courier.streams.arguments import opening
from launchpad.courier.streams.incoming import Incoming, decode_credit
from launchpad.courier.streams.link import SocketLink
from launchpad.courier.streams.outgoing import Outgoing
from launchpad.courier.streams.pump import Pump
from launchpad.courier.values import codec
from launchpad.courier.watching.counts import MethodCounts

if TYPE_CHECKING:
    from launchpad.courier.servers.house import House
    from launchpad.courier.streams.async_pump import AsyncPump


class Streams:
    """The streams of one call, at the server. What the session reads of them goes to `receive`.

    Args:
        sock: the session's.
        house: the server's.
        method: that is called.
        peer: what the client calls itself.
        counts: where the items are counted.
        takes_bytes: the largest item that the client takes.
    """

    def __init__(
        self,
        sock: Socket,
        house: House,
        method: bytes,
        peer: str,
        counts: MethodCounts,
        takes_bytes: int,
    ) -> None:
        self._house = house
        self._method = method.decode()
        self._peer = peer
        self._counts = counts
        self._takes_bytes = takes_bytes
        self._link = SocketLink(sock, house, self._drained)
        self._arguments: dict[int, Incoming] = {}
        self._outgoing: Outgoing | None = None
        self._pump: Pump | AsyncPump | None = None

    @property
    def has_ended(self) -> bool:
        """The result has been said, as far as it is for us to say."""
        return self._outgoing is not None and self._outgoing.has_ended

    def run_method(
        self, n: int, answer: Callable[[], Reply], reply: Callable[[Reply], None]
    ) -> None:
        """Calls `reply(answer())` on another thread; `answer` unpickles arguments, `n` of them streams."""
        for number in range(1, n + 1):
            self._arguments[number] = Incoming(number, self._link.send, self._counts)
        context = copy_context()
        context.run(opening.set, self._open_argument)
        outcome = Later()

        def run() -> None:
            try:
                reply(context.run(answer))
            finally:
                outcome.set_result(None)

        self._house.expect(outcome)  # a stop waits for it, and we go on to read meanwhile
        self._link.submit(run)

    def send_items(self, outgoing: Outgoing, ended: Callable[[], None]) -> None:
        """Answers with a stream. Calls `ended` when its END is written; it must not block."""
        outgoing.takes_bytes = self._takes_bytes
        outgoing.counts = outgoing.counts or self._counts  # one with a ticket has its own
        self._outgoing = outgoing
        if outgoing.is_async:
            from launchpad.courier.streams.async_pump import AsyncPump

            self._pump = AsyncPump(outgoing, self._link, self._house.methods.loop)
        else:
            self._pump = Pump(outgoing, self._link)
        self._house.expect(self._pump.outcome)
        self._pump.outcome.then(lambda _: self._end(outgoing, ended))
        self._link.send([wire.encode_small(wire.STREAM, 0, b"", b"")])

    def finish(self) -> None:
        """The method has returned: ends its arguments, and leaves the connection free for the answer."""
        self._end_arguments()
        self._link.finish()

    def receive(self, frame: wire.Fields) -> None:
        """A frame of the client, which is not a call. Raises OSError when the client is gone."""
        kind, number = frame[0], frame[1]
        if kind == wire.CREDIT and self._pump is not None and number == 0:
            self._pump.allow(*decode_credit(frame))
            self._run_pump()
        elif kind in (wire.ITEM, wire.END) and number in self._arguments:
            if not self._arguments[number].is_over:  # else it was on its way when we closed it
                self._arguments[number].receive(frame)
        else:
            raise ProtocolError(f"a frame of kind {kind} for stream {number}, which there is not")

    def break_off(self) -> None:
        """The connection has ended, or has to: closes the iterator, and arguments raise."""
        self._link.cut()
        self._link.close()
        for incoming in self._arguments.values():
            incoming.break_off(self._broken(incoming))
        if self._pump is not None:
            self._pump.cancel()

    def _run_pump(self) -> None:
        """In this thread, if that is not needed for reading: a generator may wait for arguments."""
        pump = self._pump
        if pump is None or not pump.needs_thread:
            return
        if self._arguments:
            self._link.submit(pump.run)
        else:
            pump.run()

    def _drained(self) -> None:
        if self._pump is not None:
            self._pump.drained()
            self._pump.run()

    def _end(self, outgoing: Outgoing, ended: Callable[[], None]) -> None:
        self._end_arguments()
        if self._link.close() and outgoing.has_said_so:
            ended()
        else:
            self._link.cut()  # nothing that fits can follow

    # Arguments.

    def _open_argument(self, number: int) -> ArgumentStream:
        incoming = self._arguments.get(number)
        if incoming is None:
            raise ProtocolError(f"argument stream {number} of {len(self._arguments)}")
        return ArgumentStream(
            incoming,
            self._wait,
            partial(self._raise_end, incoming),
            partial(self._close_argument, number, incoming),
        )

    def _wait(self, gate: threading.Lock) -> None:
        with contextlib.suppress(OSError):  # the connection has ended: the gate opens
            self._link.flush()  # items of the method's own must not wait for its arguments
        work.wait_for(gate)

    def _raise_end(self, incoming: Incoming) -> None:
        if incoming.error is not None:
            raise incoming.error
        end, incoming.end = incoming.end, b""  # an error is raised once
        if end:
            name = f"an iterator given to {self._method}"
            raise codec.decode_error(end, server=self._peer, address="the caller", method=name)

    def _close_argument(self, number: int, incoming: Incoming) -> None:
        if not incoming.is_over:
            self._link.send([wire.encode_small(wire.CANCEL, number, b"", b"")])
        incoming.close()

    def _end_arguments(self) -> None:
        for incoming in self._arguments.values():
            incoming.close()

    def _broken(self, incoming: Incoming) -> StreamBroken:
        return StreamBroken(
            f"the caller of {self._method!r} ({self._peer}) is gone, after {incoming.n_items} items "
            "of an argument that is a stream",
            method=self._method,
        )
