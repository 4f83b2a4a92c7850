"""A call with streams, as its client sees it."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from launchpad.courier.clients.line import Line
from launchpad.courier.clients.patience import Patience
from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol import wire
from launchpad.courier.servers.serving import serving
from launchpad.courier.streams.feeder import Feeder
from launchpad.courier.streams.incoming import Incoming, decode_credit
from launchpad.courier.streams.shared_line import SharedLine
from launchpad.courier.values import codec

if TYPE_CHECKING:
    from launchpad.courier.carriers.sockets import Socket
    from launchpad.courier.clients.options import Options
    from launchpad.courier.clients.peer import Peer
    from launchpad.courier.streams.outgoing import Outgoing
    from launchpad.courier.watching.counts import MethodCounts

_loads = pickle.loads
_LAST_ANSWERS = frozenset({wire.RESULT, wire.ERROR, wire.NOT_RUN})  # no stream follows


class Watcher(Protocol):
    """Is told once of the end of a stream, by one of these."""

    def end(self, error: Exception | None) -> None:
        """Its consumer has come to the end, or to this error, or has closed it."""

    def drop(self) -> None:
        """Nobody has it any more. Takes no lock, as the garbage collector may be calling."""


class StreamCall:
    """One call that was answered with a stream, or is being fed with some.

    Args:
        line: that the call was made on.
        put_back: takes it back when all has ended well.
        arguments: the iterators given to the call.

    Safe from any thread.
    """

    def __init__(
        self,
        line: Line,
        put_back: Callable[[Line], None],
        method: bytes,
        peer: Peer,
        options: Options,
        counts: MethodCounts,
        arguments: Sequence[Outgoing] = (),
    ) -> None:
        self._method = method
        self._peer = peer
        self._options = options
        self._counts = counts
        self._line = SharedLine(line, self, put_back)
        self._incoming = Incoming(0, self._line.send, counts)
        self._answer: wire.Fields | None = None
        self._is_open = False  # it was answered with a stream
        self.watcher: Watcher | None = None
        self._address = line.address  # another one than the peer's, if the server has moved
        name = f"courier-stream-{peer.label}"
        outlet = self._line.outlet
        self._feeders = {each.number: Feeder(self, each, outlet, name) for each in arguments}

    def wait_for_answer(self, first: wire.Fields, deadline: float | None) -> wire.Fields:
        """The server's answer, while the feeders send it what the method asks for."""
        late = partial(self._peer.late, self._method, self._options)
        look = Patience(self._peer, self._method).look
        try:
            self._line.begin(first)
            self._line.wait(self._has_outcome, deadline, late, look)
        except BaseException:
            self.close()
            raise
        if self._answer is None or self._answer[0] in _LAST_ANSWERS:
            self._end_feeders()
        if self._answer is None:
            assert self._incoming.error is not None
            raise self._incoming.error
        return self._answer

    def open(self) -> None:
        """Lets the server begin: it makes items from now on, a window ahead of us."""
        self._is_open = True
        self._incoming.open()
        for feeder in self._feeders.values():
            feeder.start()  # to read, too: there may be no consumer for a while

    def take(self) -> Any:
        """The next item; waits for it. StopIteration at the end."""
        frame = self._incoming.take()
        if frame is None:
            frame = self._wait_for_item()
        return self._open_item(frame)

    def try_take(self) -> tuple[bool, Any]:
        """(True, the next item), or (False, None) when it is not here yet; does not wait."""
        frame = self._incoming.take()
        return (False, None) if frame is None else (True, self._open_item(frame))

    def close(self) -> None:
        """Wants no more: the server closes its iterator. Whoever waits for an item gets the end."""
        self._incoming.close()
        self._shut()
        self._tell_end(None)

    def break_off(self) -> None:
        """The client is closed: whoever waits for an item gets an error."""
        error = self._peer.closed_stream(self._method)
        self._incoming.break_off(error)
        self._shut()
        self._tell_end(error)

    def abandon(self) -> None:
        """`close`, for when nobody is left who could call it; takes no lock."""
        self._incoming.drop()
        is_used = any(feeder.is_feeding for feeder in self._feeders.values())
        self._line.abandon(is_used=is_used)
        watcher, self.watcher = self.watcher, None
        if watcher is not None:
            watcher.drop()

    def drop_inherited(self) -> None:
        """For a forked child: the call is the parent's."""
        self._line.drop_inherited()
        self._incoming = Incoming(0, self._line.send, self._counts)
        self._incoming.break_off(self._peer.broken(self._method, 0))

    # For event loops.

    @property
    def sock(self) -> Socket | None:
        """To wait for, and then `read_now`; None when nothing more will be read."""
        return self._line.sock

    def read_now(self) -> None:
        """Takes in what has arrived; does not wait."""
        self._line.read_now()

    def notify(self, callback: Callable[[], object]) -> None:
        """Calls `callback()` once, when there is an item or no more will come."""
        self._incoming.notify(callback)

    def time_left(self) -> float | None:
        """How long the next item may take."""
        deadline = self._find_deadline()
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    def late(self) -> Exception:
        return self._peer.late_item(self._method, self._options)

    # For feeders.

    def wait_for(self, is_ready: Callable[[], bool]) -> bool:
        """Waits until then, and reads meanwhile; False when the call is over."""
        line = self._line
        line.wait(lambda: line.is_over or is_ready(), None, self.late, _do_not_look)
        return not line.is_over

    def feeder_ended(self) -> None:
        if self._line.is_over:
            self._line.close()

    # For the line.

    def take_in(self, frames: Sequence[wire.Fields]) -> bool:
        """Hands out what has arrived; True when that was all."""
        for frame in frames:
            self._take_in(frame)
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
        self._incoming.break_off(lost)

    def _take_in(self, frame: wire.Fields) -> None:
        kind, number = frame[0], frame[1]
        if kind in (wire.ITEM, wire.END) and number == 0:
            self._incoming.receive(frame)
        elif kind == wire.CREDIT and number in self._feeders:
            self._feeders[number].allow(*decode_credit(frame))
        elif kind == wire.CANCEL and number in self._feeders:
            self._feeders[number].cancel()
        elif kind == wire.NOT_RUN and (self._is_open or self._answer is not None):
            pass  # a server that stops takes its leave: the line will be closed
        elif kind == wire.STREAM or kind in _LAST_ANSWERS:
            self._answer = frame
        else:
            raise ProtocolError(f"a frame of kind {kind} for stream {number}")

    def _has_outcome(self) -> bool:
        return self._answer is not None or self._incoming.is_over

    # Items.

    def _wait_for_item(self) -> wire.Fields:
        deadline = self._find_deadline()
        look = Patience(self._peer, self._method, may_ask=False).look
        while (frame := self._incoming.take()) is None:
            self._line.wait(lambda: self._incoming.is_ready, deadline, self.late, look)
        return frame

    def _open_item(self, frame: wire.Fields) -> Any:
        kind, _, _, body, buffers, _, _ = frame
        if kind == wire.END:
            self._tell_end_and_raise_it()
        try:
            return _loads(body) if not buffers else _loads(body, buffers=buffers)
        except Exception as error:
            self.close()
            error.add_note(
                f"(an item of the stream {self._method.decode()!r} of {self._peer} cannot be unpickled "
                "here: its classes have to be importable on both sides. The stream was closed.)"
            )
            raise

    def _tell_end_and_raise_it(self) -> NoReturn:
        try:
            self._raise_end()
        except StopIteration:
            self._tell_end(None)
            raise
        except Exception as error:
            self._tell_end(error)
            raise

    def _tell_end(self, error: Exception | None) -> None:
        watcher, self.watcher = self.watcher, None
        if watcher is not None:
            watcher.end(error)

    def _raise_end(self) -> NoReturn:
        self._end_feeders()
        if self._incoming.error is not None:
            raise self._incoming.error
        end, self._incoming.end = self._incoming.end, b""  # an error is raised once
        if not end:
            raise StopIteration
        self._counts.errors += 1
        raise codec.decode_error(
            end,
            server=self._peer.server,
            address=self._peer.address,
            method=self._method.decode(),
        )

    def _find_deadline(self) -> float | None:
        timeout_s, on_behalf_of = self._options.timeout_s, serving.get()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        return deadline if on_behalf_of is None else on_behalf_of.limit(deadline)

    # The end.

    def _shut(self) -> None:
        self._line.close()
        self._end_feeders()

    def _end_feeders(self) -> None:
        for feeder in self._feeders.values():
            feeder.end()


def _do_not_look() -> None:
    """Feeders have nobody to tell."""
