"""A call with streams, as its client sees it, and the threads that send its arguments' items."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from launchpad.courier.client.connection import ClientConnection
from launchpad.courier.client.shared_connection import SharedConnection
from launchpad.courier.client.slow_call import SlowCallWatchdog
from launchpad.courier.codec import pickling
from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol import framing
from launchpad.courier.streams.receiver import StreamReceiver, decode_credit
from launchpad.courier.streams.sender import StreamSender, show_close_error
from launchpad.courier.transport.write_queue import WriteQueue

if TYPE_CHECKING:
    from launchpad.courier.client.options import Options
    from launchpad.courier.client.remote_server import RemoteServer
    from launchpad.courier.telemetry.counters import MethodCounts

_loads = pickle.loads
_LAST_ANSWERS = frozenset({framing.RESULT, framing.ERROR, framing.NOT_RUN})  # no stream follows


class StreamEndListener(Protocol):
    """What is called at the end of a stream: one of these methods, once."""

    def end(self, error: Exception | None) -> None:
        """The consumer has come to the end, or to this error, or has closed the stream."""

    def drop(self) -> None:
        """The stream was garbage collected: this is called by the collector, and must take no lock."""


class StreamCall:
    """One call that was answered with a stream, or has some as arguments.

    Args:
        connection: that the call was made on.
        release_connection: takes it back when all has ended well.
        arguments: the iterators given to the call.

    Safe from any thread.
    """

    def __init__(
        self,
        connection: ClientConnection,
        release_connection: Callable[[ClientConnection], None],
        method: bytes,
        peer: RemoteServer,
        options: Options,
        counts: MethodCounts,
        arguments: Sequence[StreamSender] = (),
    ) -> None:
        self._method = method
        self._peer = peer
        self._options = options
        self._counts = counts
        self.connection = SharedConnection(connection, self, release_connection)
        self._incoming = StreamReceiver(0, self.connection.send, counts)
        self._answer: framing.Fields | None = None
        self._is_open = False  # it was answered with a stream
        self.listener: StreamEndListener | None = None
        self._address = connection.address  # another one than the peer's, if the server has moved
        name = f"courier-stream-{peer.label}"
        queue = self.connection.queue
        self._argument_senders = {
            each.number: ArgumentSender(self, each, queue, name) for each in arguments
        }

    def wait_for_answer(self, first: framing.Fields, deadline: float | None) -> framing.Fields:
        """The server's answer, while threads send it the items that the method asks for."""
        late = partial(self._peer.late, self._method, self._options)
        check = SlowCallWatchdog(self._peer, self._method).check
        try:
            self.connection.begin(first)
            self.connection.wait(
                lambda: self._answer is not None or self._incoming.is_over, deadline, late, check
            )
        except BaseException:
            self.close()
            raise
        if self._answer is None or self._answer[0] in _LAST_ANSWERS:
            self._end_argument_senders()
        if self._answer is None:
            assert self._incoming.error is not None
            raise self._incoming.error
        return self._answer

    def open(self) -> None:
        """Lets the server begin: it makes items from now on, a window ahead of the consumer."""
        self._is_open = True
        self._incoming.open()
        for argument_sender in self._argument_senders.values():
            argument_sender.start()  # to read, too: there may be no consumer for a while

    def take(self) -> Any:
        """The next item; waits for it. StopIteration at the end."""
        frame = self._incoming.take()
        if frame is None:
            deadline = self._options.find_deadline(time.monotonic())
            check = SlowCallWatchdog(self._peer, self._method, may_ask=False).check
            while (frame := self._incoming.take()) is None:
                self.connection.wait(lambda: self._incoming.is_ready, deadline, self.late, check)
        return self._decode_item(frame)

    def try_take(self) -> tuple[bool, Any]:
        """(True, the next item), or (False, None) when it is not here yet; does not wait."""
        frame = self._incoming.take()
        return (False, None) if frame is None else (True, self._decode_item(frame))

    def close(self) -> None:
        """Has the server close its iterator. A thread that waits for an item gets the end."""
        self._incoming.close()
        self._shut()
        self._notify_end(None)

    def abort(self) -> None:
        """The client is closed: a thread that waits for an item gets an error."""
        error = self._peer.closed_stream(self._method)
        self._incoming.abort(error)
        self._shut()
        self._notify_end(error)

    def abandon(self) -> None:
        """`close`, as the garbage collector calls it; takes no lock."""
        self._incoming.drop()
        is_used = any(sender.is_sending for sender in self._argument_senders.values())
        self.connection.abandon(is_used=is_used)
        listener, self.listener = self.listener, None
        if listener is not None:
            listener.drop()

    def drop_inherited(self) -> None:
        """For a forked child: the call is the parent's."""
        self.connection.drop_inherited()
        self._incoming = StreamReceiver(0, self.connection.send, self._counts)
        self._incoming.abort(self._peer.broken(self._method, 0))

    # For event loops.

    def notify(self, callback: Callable[[], object]) -> None:
        """Calls `callback()` once, when there is an item or no more will come."""
        self._incoming.notify(callback)

    def time_left(self) -> float | None:
        """How long the next item may take."""
        deadline = self._options.find_deadline(time.monotonic())
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    def late(self) -> Exception:
        return self._peer.late_item(self._method, self._options)

    # For the senders of its arguments.

    def wait_for(self, is_ready: Callable[[], bool]) -> bool:
        """Waits until then, and reads meanwhile; False when the call is over."""
        connection = self.connection
        connection.wait(lambda: connection.is_over or is_ready(), None, self.late, lambda: None)
        return not connection.is_over

    # For the connection.

    def on_frames(self, frames: Sequence[framing.Fields]) -> bool:
        """Hands out what has arrived; True when that was all."""
        for frame in frames:
            kind, number = frame[0], frame[1]
            if kind in (framing.ITEM, framing.END) and number == 0:
                self._incoming.receive(frame)
            elif kind == framing.CREDIT and number in self._argument_senders:
                self._argument_senders[number].allow(*decode_credit(frame))
            elif kind == framing.CANCEL and number in self._argument_senders:
                self._argument_senders[number].cancel()
            elif kind == framing.NOT_RUN and (self._is_open or self._answer is not None):
                pass  # GOAWAY of a server that stops: the connection will be closed
            elif kind == framing.STREAM or kind in _LAST_ANSWERS:
                self._answer = frame
            else:
                raise ProtocolError(f"a frame of kind {kind} for stream {number}")
        is_answered = self._answer is not None and self._answer[0] in _LAST_ANSWERS
        return is_answered or self._incoming.is_over

    def lost(self, error: OSError) -> None:
        """The connection has ended."""
        if self._is_open:
            self._counts.errors += 1
            lost = self._peer.broken(self._method, self._incoming.n_items, self._address)
        else:
            lost = self._peer.lost(self._method, self._address)
        lost.__cause__ = error
        self._incoming.abort(lost)

    def _decode_item(self, frame: framing.Fields) -> Any:
        kind, _, _, body, buffers, _, _ = frame
        if kind == framing.END:
            self._raise_end()
        try:
            return _loads(body) if not buffers else _loads(body, buffers=buffers)
        except Exception as error:
            self.close()
            error.add_note(
                f"(an item of the stream {self._method.decode()!r} of {self._peer} cannot be unpickled "
                "here: its classes have to be importable on both sides. The stream was closed.)"
            )
            raise

    def _raise_end(self) -> NoReturn:
        """Raises StopIteration, or the error that the stream has ended with; the server's own once."""
        self._end_argument_senders()
        error = self._incoming.error
        end, self._incoming.end = self._incoming.end, b""
        if error is None and end:
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
            del error  # not part of the traceback, which the error keeps

    def _notify_end(self, error: Exception | None) -> None:
        listener, self.listener = self.listener, None
        if listener is not None:
            listener.end(error)

    def _shut(self) -> None:
        self.connection.close()
        self._end_argument_senders()

    def _end_argument_senders(self) -> None:
        for argument_sender in self._argument_senders.values():
            argument_sender.end()


class ArgumentSender:
    """Sends the items of one argument, an iterator, as far as the method has given credit for them.

    It has a thread of its own, from the first credit on: the iterator may wait for anything, even for
    what the caller does with the call's own result.
    """

    def __init__(
        self, call: StreamCall, outgoing: StreamSender, queue: WriteQueue, name: str
    ) -> None:
        self._call = call
        self._outgoing = outgoing
        self._queue = queue
        self._is_cancelled = False
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._has_started = False
        self.is_sending = False  # the thread may use the connection

    def allow(self, items: int, n_bytes: int) -> None:
        """The method takes so many more."""
        self._outgoing.allow(items, n_bytes)
        self.start()

    def cancel(self) -> None:
        """The method takes no more."""
        self._is_cancelled = True
        self._outgoing.interrupt()
        self.start()

    def end(self) -> None:
        """The call is over: closes the iterator, here if it was never stepped."""
        self._is_cancelled = True
        self._outgoing.interrupt()
        if not self._has_started:
            self._has_started = True
            self._close()

    def start(self) -> None:
        """Nothing happens the second time."""
        if not self._has_started:
            self._has_started = self.is_sending = True
            self._thread.start()

    def _main(self) -> None:
        try:
            self._outgoing.context.run(self._send_items)
        except OSError:
            pass  # the thread that reads finds the end of the connection, and reports it
        finally:
            self._close()
            self.is_sending = False
            if self._call.connection.is_over:
                self._call.connection.close()

    def _send_items(self) -> None:
        outgoing = self._outgoing
        while not outgoing.has_ended and self._call.wait_for(
            lambda: self._is_cancelled or outgoing.has_credit
        ):
            if self._is_cancelled:
                return
            self._queue.put_chunks(outgoing.step())
            while not self._queue.flush_all():  # a closed queue has nothing left
                self._queue.wait_until_writable(1.0)

    def _close(self) -> None:
        try:
            self._outgoing.context.run(self._outgoing.close)
        except BaseException:
            show_close_error()
