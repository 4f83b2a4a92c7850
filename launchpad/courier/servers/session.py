"""A connection whose client makes one call at a time and waits for the answer."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from launchpad.courier.carriers import sockets
from launchpad.courier.carriers.sockets import Socket
from launchpad.courier.carriers.vigil import Vigil
from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol import compression, greeting, notes, wire
from launchpad.courier.servers.connection import LINGER_S, Connection
from launchpad.courier.servers.later import Later
from launchpad.courier.servers.methods import ELSEWHERE, LATER, OURS, Reply, encode_outcome, fit
from launchpad.courier.servers.pool import Job
from launchpad.courier.servers.serving import Serving, serving
from launchpad.courier.streams.arguments import decode_count
from launchpad.courier.streams.outgoing import Outgoing
from launchpad.courier.watching.counts import MethodCounts

if TYPE_CHECKING:
    from launchpad.courier.servers.house import House
    from launchpad.courier.streams.streams import Streams

_monotonic = time.monotonic
_serve_for, _serve_no_more = serving.set, serving.reset
_pack, _MAGIC, _RESULT, _ERROR = wire.HEADER.pack, wire.MAGIC, wire.RESULT, wire.ERROR
_SMALL = wire.SMALL
_STOPPING: Reply = (wire.NOT_RUN, wire.STOPPING, [])
_NO_SIGNAL = sockets.NO_SIGNAL


class Session(Connection):
    """Serves one call after another, in the order in which they come."""

    _streams: Streams | None = None  # of the call that runs, or ran last

    def __init__(self, sock: Socket, house: House, said: greeting.Greeting) -> None:
        super().__init__(sock, house)
        self._decoder = wire.Decoder(max_bytes=house.max_bytes)
        self._takes_bytes = said.max_bytes
        self.caller = said.peer
        self._counts = house.counts.of(said.peer)
        self._vigil = Vigil(sock)
        self._send = self._vigil.send
        self._answer_call = house.methods.answer
        self._noticed_at = 0.0
        self._owed: set[Later] = set()  # the outcome of the call that runs, if it comes later
        self._has_ended = False  # nothing more will be read
        self._compresses = False  # the caller of the call that runs does so
        self._urgent = house.methods.urgent
        self._ahead: list[wire.Fields] = []  # read before there was a thread to run it
        self._ahead_failed: ProtocolError | None = None
        sockets.set_receive_timeout(sock, LINGER_S)

    def take_job(self) -> Job:
        self._noticed_at = _monotonic()  # from here on the call may wait for a thread
        if self._urgent:
            self._look_ahead()
        return self

    def close(self) -> None:
        for later in tuple(self._owed):
            later.cancel()  # nobody is there to hear it
        streams, self._streams = self._streams, None
        if streams is not None:
            streams.break_off()
        super().close()

    def abandon(self) -> None:
        if self._owed or self._streams is not None:
            self.close()

    def hang_up(self) -> None:
        if self._streams is None:  # else they go on, and `_end_streams` hangs up
            super().hang_up()

    def _serve(self) -> None:
        receive, decoder, pool = self._receive, self._decoder, self._house.pool
        if self._ahead or self._ahead_failed:
            self._serve_ahead()
            if not pool.may_linger:
                self._park()
                return
        while True:
            self.is_waiting = True
            try:
                n = receive(decoder.buffer)
            except BlockingIOError:
                break
            finally:
                self.is_waiting = False
            if not n:
                self._has_ended = True  # first: who answers later looks the other way around
                if self._streams is None and not self._owed:
                    self.part()
                elif self._streams is not None or not self._house.is_stopping:
                    self.close()
                return
            frame = decoder.received_alone(n)
            for each in self._received(n) if frame is None else (frame,):
                if each[0] == wire.CALL:
                    self._answer(each)
                elif (streams := self._streams) is not None:
                    streams.receive(each)
            self._noticed_at = 0.0
            if not pool.may_linger:
                break
        self._park()

    def _receive(self, buffer: memoryview) -> int:
        if self._house.pool.is_calm:
            return self._vigil.receive(buffer)
        return self.sock.recv_into(buffer)

    def _received(self, n: int) -> list[wire.Fields]:
        return self._decoder.received(n)

    def _look_ahead(self) -> None:
        """Reads what there is, to know before the call has a thread whether it is urgent."""
        try:
            n = self.sock.recv_into(self._decoder.buffer, 0, socket.MSG_DONTWAIT)
            self._ahead += self._received(n) if n else ()
        except OSError:
            return  # the thread will meet it again
        except ProtocolError as error:
            self._ahead_failed = error
        self.is_urgent = any(frame[2] in self._urgent for frame in self._ahead)

    def _serve_ahead(self) -> None:
        if self._ahead_failed is not None:
            raise self._ahead_failed
        frames, self._ahead = self._ahead, []
        for frame in frames:
            if frame[0] == wire.CALL:
                self._answer(frame)
            elif (streams := self._streams) is not None:
                streams.receive(frame)
        self._noticed_at = 0.0
        self.is_urgent = False

    def _answer(self, frame: wire.Fields) -> None:
        _, call_id, method, body, buffers, timeout_us, said = frame
        counts = self._counts[method]
        began = _monotonic()
        counts.started += 1
        n_in = wire.size(body, buffers) if buffers else len(body)
        if self._house.is_stopping and not method.startswith(OURS):
            kind, result, views = _STOPPING
        elif timeout_us or said:
            kind, result, views = self._answer_on_behalf(frame, began)
        else:
            kind, result, views = self._answer_call(method, body, buffers)
        if kind > _ERROR or views or len(result) > _SMALL:
            self._answer_specially(call_id, (kind, result, views), counts, began, n_in)
            return
        try:
            reply = _pack(_MAGIC, kind, 0, 0, call_id, len(result), 0) + result
            if (n := self._send(reply, _NO_SIGNAL)) != len(reply):
                sockets.send_all(self.sock, [reply[n:]])
        except OSError:
            kind = _ERROR  # nobody has heard the result
            raise
        finally:  # as `counts.finish`: a call of it would cost as much again
            took_s = _monotonic() - began
            bucket = int(took_s * 1e6).bit_length()
            n_out = len(result)
            if kind == _ERROR:
                counts.errors += 1
            counts.total_s += took_s
            counts.bytes_in += n_in
            counts.bytes_out += n_out
            counts.buckets[bucket] += 1

    def _answer_on_behalf(self, frame: wire.Fields, began: float) -> Reply:
        """Answers a call with a deadline or notes, which those that the method makes inherit."""
        _, _, method, body, buffers, timeout_us, said = frame
        until = None
        if timeout_us:
            until = (self._noticed_at or began) + timeout_us * 1e-6
            if until < began:
                return wire.NOT_RUN, wire.LATE, []
        if said:
            return self._answer_noted(frame, until)
        token = _serve_for(Serving(until))
        try:
            return self._answer_call(method, body, buffers)
        finally:
            _serve_no_more(token)

    def _answer_noted(self, frame: wire.Fields, until: float | None) -> Reply:
        """Answers a call that says more about itself (notes.TAGS)."""
        _, _, method, body, buffers, _, said = frame
        found = notes.decode(said)
        if (note := found.get(notes.COMPRESSED)) is not None:
            body, buffers = compression.unpack(note, body, buffers, self._house.max_bytes)
            self._compresses = True
        on_behalf_of = Serving(until, found.get(notes.TRACE, b""))
        if (count := found.get(notes.STREAMS)) is not None:
            answer = partial(self._house.methods.answer_for, on_behalf_of, method, body, buffers)
            return self._answer_elsewhere(frame, decode_count(count), answer)
        return self._house.methods.answer_for(on_behalf_of, method, body, buffers)

    def _answer_specially(
        self, call_id: int, reply: Reply, counts: MethodCounts, began: float, n_in: int
    ) -> None:
        """For what is not small, or no answer yet."""
        if reply[0] == LATER:
            self._answer_later(reply[1], call_id, counts, began, n_in)
        elif reply[0] == wire.STREAM:
            self._answer_with_items(reply[1], counts, began, n_in)
        elif reply[0] != ELSEWHERE:
            self._send_reply(call_id, reply, counts, began, n_in)

    def _send_reply(
        self, call_id: int, reply: Reply, counts: MethodCounts, began: float, n_in: int
    ) -> None:
        if (streams := self._streams) is not None:
            streams.finish()
        kind, result, views = fit(reply, self._takes_bytes)
        said = b""
        if self._compresses and compression.is_worthwhile(result, views):
            result, views, note = compression.pack(result, views)
            said = notes.encode({notes.COMPRESSED: note})
        self._compresses = False
        n_out = wire.size(result, views)
        try:
            self._write(kind, call_id, result, views, said)
        except OSError:
            kind = _ERROR  # nobody has heard the result
            raise
        finally:
            if kind != _RESULT:
                counts.errors += 1
            counts.finish(_monotonic() - began, n_in, n_out)
        if streams is not None:
            self._end_streams(streams)

    def _write(
        self, kind: int, call_id: int, body: bytes, views: list[memoryview], said: bytes
    ) -> None:
        """One frame. `views` may be empty afterwards."""
        sockets.send_all(self.sock, wire.encode(kind, call_id, b"", body, views, 0, said))

    def _answer_later(
        self, later: Later, call_id: int, counts: MethodCounts, began: float, n_in: int
    ) -> None:
        """Frees this thread. The answer is sent from one of the pool: it may have to wait."""
        self._owed.add(later)

        def send() -> None:
            try:
                self._answer_specially(call_id, encode_outcome(later), counts, began, n_in)
            except OSError:
                self.cut()  # who reads closes
            self._owed.discard(later)
            if self._has_ended and self._streams is not None:
                self.close()  # without a reader there is no credit
            elif self._has_ended:
                self.part()

        self._house.owe(later, send)

    def _answer_elsewhere(
        self, frame: wire.Fields, n_streams: int, answer: Callable[[], Reply]
    ) -> Reply:
        """Has another thread run a method of whose arguments some are streams, which we read."""
        _, call_id, method, body, buffers, _, _ = frame
        counts, began, n_in = self._counts[method], _monotonic(), wire.size(body, buffers)
        streams = self._streams = self._open_streams(method, counts)

        def reply(answer: Reply) -> None:
            self._answer_specially(call_id, answer, counts, began, n_in)

        streams.run_method(n_streams, answer, reply)
        return ELSEWHERE, b"", []

    def _answer_with_items(
        self, outgoing: Outgoing, counts: MethodCounts, began: float, n_in: int
    ) -> None:
        streams = self._streams
        if streams is None or streams.has_ended:
            streams = self._streams = self._open_streams(b"", counts)
        counts.finish(_monotonic() - began, n_in, 0)
        streams.send_items(outgoing, partial(self._end_streams, streams))

    def _open_streams(self, method: bytes, counts: MethodCounts) -> Streams:
        from launchpad.courier.streams.streams import Streams

        return Streams(self.sock, self._house, method, self.caller, counts, self._takes_bytes)

    def _end_streams(self, streams: Streams) -> None:
        if self._streams is streams:
            self._streams = None
            if self._house.is_stopping:
                self.hang_up()
