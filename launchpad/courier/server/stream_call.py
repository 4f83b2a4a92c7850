"""Streams: calls whose result, or whose arguments, arrive one item after the other.

A call that has streams has its connection to itself until the last stream ends. Each stream has a number,
which its frames carry instead of a call id: 0 is the result, 1, 2, … are the arguments. The side that
consumes a stream gives credit for it. Without credit the other side does not send.

    client                                                         server
    ──────                                                         ──────
    CALL  headers: STREAMS, how many arguments are streams ──────▶  runs the method
      ◀─────────────────── CREDIT 1: it wants items of argument 1
    ITEM 1 · ITEMS 1 · … · END 1 ────────────────────────────────▶
      ◀───────── CANCEL 1: it wants no more of them, nor an END
      ◀──────────────────────── RESULT or ERROR: all is over, or
      ◀──────────────────────────────────── STREAM: an iterator
    CREDIT 0 ────────────────────────────────────────────────────▶  steps it
      ◀────────────────────────────── ITEM 0 · ITEMS 0 · … · END 0: all is over

An ITEMS frame carries several items that were waiting to be sent. Each of them uses its own credit
(streams/items.py). An END has an empty body, or the exception that ended the stream. If the
connection ends without an END, the consumer gets an error, never a silent end. To close a stream
early, the client closes the connection. A stream is never resumed.

This file is the server's end of one such call. A method whose arguments are streams runs on another
thread, because the connection's thread must read what the method waits for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from launchpad.courier.codec import pickling
from launchpad.courier.codec.iterators import StreamedIterator
from launchpad.courier.errors import ProtocolError, StreamBroken
from launchpad.courier.promise import Promise
from launchpad.courier.protocol import framing
from launchpad.courier.server import thread_pool
from launchpad.courier.server.connection import ServerConnection
from launchpad.courier.server.replies import Reply
from launchpad.courier.server.stream_pump import AsyncPump, Pump, StreamWriter, SyncPump
from launchpad.courier.streams.arguments import opening
from launchpad.courier.streams.items import decode_item
from launchpad.courier.streams.receiver import ENDED, NOT_HERE, StreamReceiver, decode_credit
from launchpad.courier.streams.sender import StreamSender
from launchpad.courier.telemetry.counters import MethodCounts

if TYPE_CHECKING:
    from launchpad.courier.server.services import ServerServices

_SCALARS = pickling.SCALARS


class ServerStreamCall:
    """The streams of one call, at the server. The connection passes their frames to `receive`.

    Args:
        counts: the counters for the items.
        takes_bytes: the size of the largest item that the client takes.
    """

    def __init__(
        self,
        connection: ServerConnection,
        core: ServerServices,
        method: bytes,
        counts: MethodCounts,
        takes_bytes: int,
    ) -> None:
        self._connection = connection
        self._core = core
        self.caller = connection.caller
        self.method = method.decode()
        self._counts = counts
        self._takes_bytes = takes_bytes
        self.writer = StreamWriter(connection, core)
        self._arguments: dict[int, StreamReceiver] = {}
        self.pump: Pump | None = None  # set if the result is a stream

    def run_method(
        self, n: int, answer: Callable[[], Reply], reply: Callable[[Reply], None]
    ) -> None:
        """Call `reply(answer())` on another thread. `answer` unpickles arguments; `n` are streams."""
        for number in range(1, n + 1):
            self._arguments[number] = StreamReceiver(number, self.writer.send, self._counts)
        context = copy_context()
        context.run(opening.set, self._open_argument)
        outcome = Promise()

        def run() -> None:
            try:
                reply(context.run(answer))
            finally:
                outcome.set_result(None)

        self._core.track(outcome)  # so that `stop` waits for it, while this thread goes on reading
        self.writer.submit(run)

    def send_items(self, outgoing: StreamSender, on_end: Callable[[], None]) -> None:
        """Answer with a stream. Calls `on_end`, which must not block, when the END is written."""
        items = outgoing.items
        items.takes_bytes = self._takes_bytes
        items.counts = items.counts or self._counts  # a stream with a ticket has counts of its own
        # The client makes its next call when it has the END. So no frame of the arguments may follow the END.
        items.on_end = self._close_arguments
        if outgoing.is_async:
            self.pump = AsyncPump(outgoing, self.writer, self._core.methods.loop)
        else:
            self.pump = SyncPump(outgoing, self.writer)

        def end(_: Promise) -> None:
            self._close_arguments()
            if self.writer.close() and items.has_reported_end:
                on_end()
            else:
                # Part of a frame, or the END, is missing. The client would misread whatever follows.
                self._connection.cut()

        self._core.track(self.pump.outcome)
        self.pump.outcome.then(end)
        self.writer.send([framing.encode_small(framing.STREAM, 0, b"", b"")])

    def finish(self) -> None:
        """End the arguments after the method has returned, and leave the connection for the answer."""
        self._close_arguments()
        self.writer.finish()

    def receive(self, frame: framing.Fields) -> None:
        """Process a frame from the client that isn't a call. Raises OSError if the client is gone."""
        kind = frame[0]
        number = frame[1]
        pump = self.pump
        if kind == framing.CREDIT and pump is not None and number == 0:
            pump.outgoing.items.allow(*decode_credit(frame))
            # The result's generator may wait for items of the arguments. Then this thread must go on reading
            # them, so another thread steps the generator.
            pump.go_on(in_pool=bool(self._arguments))
        elif kind in (framing.ITEM, framing.ITEMS, framing.END) and number in self._arguments:
            self._arguments[number].receive(frame)
        else:
            raise ProtocolError(f"a frame of kind {kind} for stream {number}, which does not exist")

    def abort(self) -> None:
        """Cut the connection, close the result's iterator, and make arguments raise StreamBroken."""
        self._connection.cut()
        self.writer.close()
        for incoming in self._arguments.values():
            error = StreamBroken(
                f"the caller of {self.method!r} ({self.caller}) is gone, after "
                f"{incoming.n_items} items of an argument that is a stream",
                method=self.method,
            )
            incoming.abort(error)
        if self.pump is not None:
            self.pump.outcome.cancel()

    def _close_arguments(self) -> None:
        for number, incoming in self._arguments.items():
            incoming.close(
                error=RuntimeError(
                    f"argument {number} of {self.method!r} that is a stream was kept, and read after its "
                    f"call had ended: {incoming.n_items} items had arrived by then. Read it before the "
                    "method returns; a list of its items can be kept."
                )
            )

    def _open_argument(self, number: int) -> ArgumentStream:
        """Return an argument as the method sees it."""
        incoming = self._arguments.get(number)
        if incoming is None:
            raise ProtocolError(f"argument stream {number} of {len(self._arguments)}")
        return ArgumentStream(self, number, incoming)


class ArgumentStream(StreamedIterator, Iterator[Any]):
    """An argument that is a stream, as the method sees it: an iterator of the caller's items.

    Example:
        def learn(self, batches: Iterator[Batch]) -> float:
            return sum(self.step(batch) for batch in batches)

    Iterate with `for` or `async for`. If the caller's iterator raises an exception, this iterator raises it.
    When the method returns, or calls `close`, the caller's iterator is closed. Any number of threads may
    take items. Each item goes to one of them.
    """

    def __init__(self, call: ServerStreamCall, number: int, incoming: StreamReceiver) -> None:
        self._call = call
        self._number = number
        self._incoming = incoming
        self._take = incoming.take

    def __next__(self) -> Any:
        item = self._take()
        return item if type(item) in _SCALARS else self._wait_for_item(item)

    def __aiter__(self) -> ArgumentStream:
        return self

    async def __anext__(self) -> Any:
        item = self._take()
        return item if type(item) in _SCALARS else await self._await_item(item)

    def close(self) -> None:
        """End the iteration, and have the caller's iterator closed."""
        self._incoming.close([framing.encode_small(framing.CANCEL, self._number, b"", b"")])

    async def aclose(self) -> None:
        """Do what `close` does, for `contextlib.aclosing`."""
        self.close()

    def _wait_for_item(self, item: Any) -> Any:
        """Return the item that `take` returned. If that is NOT_HERE, wait for the next item."""
        while item is NOT_HERE:
            self._incoming.open()
            waiter = threading.Lock()
            waiter.acquire()
            self._incoming.notify(waiter.release)
            # The items that the method yields must not wait until items of its arguments arrive.
            self._call.writer.flush_quietly()
            thread_pool.blocking_acquire(waiter)
            item = self._take()
        return decode_item(item) if item is not ENDED else self._end(StopIteration)

    async def _await_item(self, item: Any) -> Any:
        import asyncio

        while item is NOT_HERE:
            self._incoming.open()
            loop = asyncio.get_running_loop()
            arrived = asyncio.Event()
            self._incoming.notify(partial(loop.call_soon_threadsafe, arrived.set))
            await arrived.wait()
            item = self._take()
        return decode_item(item) if item is not ENDED else self._end(StopAsyncIteration)

    def _end(self, end: type[Exception]) -> NoReturn:
        """Raise the exception of the caller's iterator, once, or else `end`."""
        incoming = self._incoming
        call = self._call
        if incoming.error is not None:
            raise incoming.error
        error = incoming.end
        incoming.end = b""  # so that the error is raised only once
        if error:
            name = f"an iterator given to {call.method}"
            raise pickling.decode_error(
                error, server=call.caller, address="the caller", method=name
            )
        raise end
