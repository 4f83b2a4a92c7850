"""A call with streams, as its client sees it.

Stream ──▶ StreamCall ◀──▶ SharedConnection       its consumer takes items, and reads while it waits
               ▲
         ArgumentSender × n                       each on a thread, once the method asks for items
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from launchpad.courier import fork
from launchpad.courier.client import call_errors
from launchpad.courier.client.argument_sender import ArgumentSender, CoroutineRunner
from launchpad.courier.client.call import release_connection
from launchpad.courier.client.connection import ClientConnection
from launchpad.courier.client.shared_connection import SharedConnection
from launchpad.courier.client.watchdog import SlowCallWatchdog
from launchpad.courier.codec import pickling
from launchpad.courier.codec.iterators import StreamedIterator
from launchpad.courier.errors import ProtocolError, StreamBroken
from launchpad.courier.interruptions import is_interruption
from launchpad.courier.protocol import framing
from launchpad.courier.streams.items import decode_item
from launchpad.courier.streams.receiver import ENDED, NOT_HERE, StreamReceiver, decode_credit
from launchpad.courier.streams.sender import StreamSender

if TYPE_CHECKING:
    import asyncio

    from launchpad.courier.client.channel_protocols import CallRoute

_SCALARS = pickling.SCALARS
_LAST_ANSWERS = frozenset({framing.RESULT, framing.ERROR, framing.NOT_RUN})  # no stream follows


class StreamEndListener(Protocol):
    """A listener for the end of a stream. The stream calls one of these methods, once."""

    def end(self, error: Exception | None) -> None:
        """Note that the consumer reached the end or this error, or closed the stream."""

    def drop(self) -> None:
        """Note that the stream was garbage collected. The collector calls this, so take no lock."""


class Stream(StreamedIterator, Iterator[Any]):
    """The items that a method yields: the result of a call whose method returns an iterator.

    Example:
        with client.rows(table="users") as rows:    # or: for row in client.rows("users"): …
            for row in rows:
                if wanted(row):
                    break

    The server makes items from the call on, but at most a window ahead of what the client has taken. The
    window is 64 items (1,024 items while each is made and taken within 25 µs), and at most 8 MiB. When the
    server's iterator ends, so does this one. If the server's iterator raises an exception, the stream raises
    it after all items before it. If the connection is lost, the stream raises StreamBroken.

    `close`, the end of the block, or dropping the stream closes the server's iterator, so the `finally`
    of a generator runs. The client's timeout limits the call and the wait for each item. After that time the
    stream raises DeadlineExceeded and stays open. Any number of threads may take items. Each item goes to
    one of them.
    """

    def __init__(self, call: StreamCall) -> None:
        self._call = call
        self._take = call.incoming.take
        self._abandon = weakref.finalize(self, call.abandon)

    def __next__(self) -> Any:
        try:
            item = self._take()
            return item if type(item) in _SCALARS else self._call.wait_for_item(item)
        except BaseException as error:
            if type(error) is not StopIteration and is_interruption(error):
                self._call.interrupt()
            raise

    def close(self) -> None:
        """Close the server's iterator and end the iteration. A second call does nothing."""
        self._abandon.detach()
        self._call.close()

    def watch(self, listener: StreamEndListener) -> None:
        """Call the listener at the end of the stream."""
        self._call.listener = listener

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class StreamCall:
    """One call that was answered with a stream, or has streams as `arguments`. Safe from any thread."""

    def __init__(
        self,
        channel: CallRoute,
        connection: ClientConnection,
        method: bytes,
        arguments: Sequence[StreamSender],
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self._method = method
        self._peer = channel.peer
        self.options = channel.options
        self._counts = channel.counts[method]
        self.connection = SharedConnection(connection, self, partial(release_connection, channel))
        self.connection.may_spin = not arguments
        self.incoming = StreamReceiver(0, self.connection.send, self._counts)
        self._answer: framing.Fields | None = None
        self._is_open = False  # True once the server has answered with a stream
        self.listener: StreamEndListener | None = None
        self._address = connection.address  # differs from the peer's if the server has moved
        name = f"courier-stream-{self._peer.label}"
        self._senders = {
            argument.items.number: ArgumentSender(
                self.connection, argument, CoroutineRunner(loop), self.late, name
            )
            for argument in arguments
        }

    def wait_for_answer(self, first: framing.Fields, deadline: float | None) -> framing.Fields:
        """Return the server's answer. Until it comes, threads send the items that the method asks for."""
        late = partial(call_errors.late, self._peer, self._method, self.options)
        check = SlowCallWatchdog(self._peer, self._method).check
        try:
            self.connection.begin(first)
            self.connection.wait(
                lambda: self._answer is not None or self.incoming.is_over, deadline, late, check
            )
        except BaseException:
            self.close()
            raise
        if self._answer is None or self._answer[0] in _LAST_ANSWERS:
            self._end_senders()
        if self._answer is None:
            raise self.incoming.error or CancelledError
        return self._answer

    def open(self) -> None:
        """Let the server begin to make items, a window ahead of the consumer."""
        self._is_open = True
        self.incoming.open()
        for sender in self._senders.values():
            sender.start()  # its thread also reads, in case there is no consumer for a while

    def wait_for_item(self, item: Any) -> Any:
        """Return the item that `incoming.take` gave, or wait for the next. Raise StopIteration at the end."""
        if item is NOT_HERE:
            deadline = self.options.find_deadline(time.monotonic())
            check = SlowCallWatchdog(self._peer, self._method, may_ask=False).check
            while True:
                item = self.incoming.take()
                if item is not NOT_HERE:
                    break
                self.connection.wait(lambda: self.incoming.is_ready, deadline, self.late, check)
        return self.decode_item(item)

    def close(self, error: Exception | None = None) -> None:
        """Make the server close its iterator.

        A thread that waits for an item gets the end of the stream, or `error`.
        """
        if error is None:
            self.incoming.close()
        else:
            self.incoming.abort(error)
        self.connection.close()
        self._end_senders()
        self._notify_end(error)

    def abort(self) -> None:
        """End the stream of a closed client. A thread that waits for an item gets an error."""
        method = self._method.decode()
        self.close(
            StreamBroken(
                f"the client of {self._peer} was closed in the middle of the stream {method!r}",
                **call_errors.where(self._peer, self._method),
            )
        )

    def interrupt(self) -> None:
        """End the stream: a signal handler raised while a thread took an item, and the item may be lost."""
        method = self._method.decode()
        self.close(
            StreamBroken(
                f"the stream {method!r} of {self._peer} is closed: an exception of a signal handler, such as"
                " Ctrl-C, ended the wait for an item of it. Make the call again.",
                **call_errors.where(self._peer, self._method),
            )
        )

    def abandon(self) -> None:
        """Close the stream for the garbage collector, without taking a lock."""
        self.incoming.drop()
        is_used = any(sender.is_sending for sender in self._senders.values())
        self.connection.abandon(is_used=is_used)
        listener = self.listener
        self.listener = None
        if listener is not None:
            listener.drop()

    def drop_inherited(self) -> None:
        """End the stream in a forked child. The stream belongs to the parent."""
        self.connection.drop_inherited()
        text = f"{fork.describe_child()}, which has the stream {self._method.decode()!r} of {self._peer}"
        self.incoming.drop_inherited(
            StreamBroken(text, **call_errors.where(self._peer, self._method))
        )

    def late(self) -> Exception:
        """Return the error for a wait for an item that is past its deadline."""
        return call_errors.late(self._peer, self._method, self.options, in_stream=True)

    # The connection calls `on_frames` and `lost`.

    def on_frames(self, frames: Sequence[framing.Fields]) -> bool:
        """Pass on the frames that have arrived. Return True if no more frames will come.

        Only the server's frames decide that: a call that is about to close here may still run at the server.
        """
        is_done = False
        for frame in frames:
            kind = frame[0]
            number = frame[1]
            if kind in (framing.ITEM, framing.ITEMS, framing.END) and number == 0:
                self.incoming.receive(frame)
                is_done = kind == framing.END
            elif kind == framing.CREDIT and number in self._senders:
                self._senders[number].allow(*decode_credit(frame))
            elif kind == framing.CANCEL and number in self._senders:
                self._senders[number].cancel()
            elif kind == framing.NOT_RUN and (self._is_open or self._answer is not None):
                pass  # a GOAWAY: the server stops, and will close the connection
            elif kind == framing.STREAM or kind in _LAST_ANSWERS:
                self._answer = frame
            else:
                raise ProtocolError(f"a frame of kind {kind} for stream {number}")
        return is_done or (self._answer is not None and self._answer[0] in _LAST_ANSWERS)

    def lost(self, error: OSError) -> None:
        """End the stream with an error, because the connection has ended."""
        self._counts.errors += self._is_open
        n_items = self.incoming.n_items if self._is_open else None
        lost = call_errors.lost(self._peer, self._method, self._address, n_items)
        lost.__cause__ = error.with_traceback(None)
        self.incoming.abort(lost)

    def decode_item(self, item: Any) -> Any:
        """Return the item that `incoming.take` gave.

        Raises StopIteration at the end of the stream, or the error that ended it.
        """
        if item is ENDED:
            self._end_senders()
            error = self.incoming.error
            end = self.incoming.end
            self.incoming.end = b""
            if error is None and end:  # the error of the server's iterator, raised once
                self._counts.errors += 1
                error = pickling.decode_error(
                    end,
                    server=self._peer.server,
                    address=self._peer.address,
                    method=self._method.decode(),
                )
            self._notify_end(error)
            try:
                raise StopIteration if error is None else error
            finally:
                del error  # the error's traceback must not keep the error alive
        try:
            return decode_item(item)
        except Exception as error:
            self.close()
            error.add_note(
                f"(an item of the stream {self._method.decode()!r} of {self._peer} cannot be unpickled "
                "here: its classes have to be importable on both sides. The stream was closed.)"
            )
            raise

    def _notify_end(self, error: Exception | None) -> None:
        listener = self.listener
        self.listener = None
        if listener is not None:
            listener.end(error)

    def _end_senders(self) -> None:
        for sender in self._senders.values():
            sender.end()
