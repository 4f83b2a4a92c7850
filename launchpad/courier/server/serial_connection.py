"""A connection whose client makes one call at a time and waits for the answer.

A client on the same host may request a connection that shares memory, for calls with large buffers.
"""

from __future__ import annotations

import socket
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from launchpad.courier.call_stack import CallContext, current_call
from launchpad.courier.codec import compression
from launchpad.courier.errors import ProtocolError
from launchpad.courier.promise import Promise
from launchpad.courier.protocol import framing, handshake
from launchpad.courier.protocol.framing import BUILTIN_PREFIX
from launchpad.courier.server.connection import LINGER_S, ServerConnection
from launchpad.courier.server.replies import (
    ANSWERED_SEPARATELY,
    PROMISE,
    Reply,
    encode_outcome,
    fit,
)
from launchpad.courier.server.thread_pool import FunctionJob, Job
from launchpad.courier.shm import segments
from launchpad.courier.streams.arguments import decode_count
from launchpad.courier.telemetry.counters import MethodCounts
from launchpad.courier.transport import stream_socket
from launchpad.courier.transport.spin_wait import SpinWaiter
from launchpad.courier.transport.stream_socket import Socket

if TYPE_CHECKING:
    from launchpad.courier.server.services import ServerServices
    from launchpad.courier.server.stream_call import ServerStreamCall

_monotonic = time.monotonic
_serve_for = current_call.set
_serve_no_more = current_call.reset
_pack = framing.HEADER.pack
_MAGIC = framing.MAGIC
_RESULT = framing.RESULT
_ERROR = framing.ERROR
_SMALL = framing.SMALL
_STOPPING: Reply = (framing.NOT_RUN, framing.STOPPING, [])
_NO_SIGNAL = stream_socket.NO_SIGNAL


class SerialConnection(ServerConnection):
    """A connection that serves one call after another, in the order in which they come."""

    # The streams of the call that runs, or ran last. The client may get the answer and make the next call
    # before the streams have ended here.
    _streams: ServerStreamCall | None = None

    def __init__(self, sock: Socket, core: ServerServices, hello: handshake.ClientHello) -> None:
        super().__init__(sock, core, hello.peer)
        self._decoder = framing.FrameDecoder(
            max_bytes=core.max_bytes, most_scratch_bytes=framing.SCRATCH_BYTES
        )
        self._takes_bytes = hello.max_bytes
        self._most_at_once = min(hello.max_bytes, segments.WORTHWHILE - 1)
        self.caller = hello.peer.name
        self._counts = core.counts.of(hello.peer.name)
        self._spin = SpinWaiter(sock)
        self._noticed_at = 0.0
        # The outcome of the call that runs, if its method returned a promise.
        self._pending_promises: set[Promise] = set()
        # This lock is held to set `_streams`. The thread that ends the streams of one call must not remove
        # those that another thread opens for the next call.
        self._streams_lock = threading.Lock()
        self._has_ended = False  # once True, nothing more is read
        # Frames that were read before there was a thread to run them.
        self._ahead: list[framing.Fields] = []
        stream_socket.set_receive_timeout(sock, LINGER_S)

    def take_job(self) -> Job:
        self._noticed_at = _monotonic()  # after this the call may wait for a thread
        urgent = self._core.methods.urgent
        # Read what has already arrived, to find out if the call overtakes other calls.
        if urgent:
            try:
                n = self.sock.recv_into(self._decoder.buffer, 0, socket.MSG_DONTWAIT)
                self._ahead += self._received(n) if n else ()
            except OSError:
                return self  # `run` will get the same error
            except ProtocolError:
                return FunctionJob(self.close)
            self.is_urgent = any(frame[2] in urgent for frame in self._ahead)
        return self

    def close(self) -> None:
        for promise in tuple(self._pending_promises):
            promise.cancel()  # no client is left to receive the result
        streams = self._streams
        self._streams = None
        if streams is not None:
            streams.abort()
        super().close()

    def abandon(self) -> None:
        if self._pending_promises or self._streams is not None:
            self.close()

    def hang_up(self) -> None:
        # Streams go on until they end. Then `_end_streams` hangs up.
        if self._streams is None:
            super().hang_up()

    def _serve(self) -> None:
        receive = self.sock.recv_into
        spin = self._spin.receive
        decoder = self._decoder
        received_alone = self._received_alone
        pool = self._core.pool
        if self._ahead:
            self._take(self._ahead)
            self._ahead = []
            self._noticed_at = 0.0
            self.is_urgent = False
            if not pool.may_linger:
                self._core.poller.park(self)
                return
        while True:
            self.is_waiting = True
            try:
                may_spin = pool.is_calm and not self._pending_promises
                n = spin(decoder.buffer) if may_spin else receive(decoder.buffer)
            except BlockingIOError:
                break
            finally:
                self.is_waiting = False
            if not n:
                # Set this before looking for promises. A thread that answers later first removes its promise
                # and then looks at this flag. So at least one of the two threads closes the connection.
                self._has_ended = True
                if self._streams is None and not self._pending_promises:
                    self.part()
                elif self._streams is not None or not self._core.is_stopping:
                    self.close()
                return
            frame = received_alone(n)
            if frame is not None and frame[0] == framing.CALL:
                self._answer(frame)
            else:
                self._take(self._received(n) if frame is None else [frame])
            self._noticed_at = 0.0
            if not pool.may_linger:
                break
        self._core.poller.park(self)

    def _received(self, n: int) -> list[framing.Fields]:
        return self._decoder.received(n)

    def _received_alone(self, n: int) -> framing.Fields | None:
        return self._decoder.received_alone(n)

    def _take(self, frames: list[framing.Fields]) -> None:
        for frame in frames:
            if frame[0] == framing.CALL:
                self._answer(frame)
                continue
            streams = self._streams  # read once: another thread may end them
            if streams is not None:
                streams.receive(frame)

    def _answer(self, frame: framing.Fields) -> None:
        _, call_id, method, body, buffers, timeout_us, header_data = frame
        counts = self._counts[method]
        began = _monotonic()
        counts.started += 1
        n_in = framing.size(body, buffers) if buffers else len(body)
        if self._core.is_stopping and not method.startswith(BUILTIN_PREFIX):
            kind, result, views = _STOPPING
        elif timeout_us or header_data:
            kind, result, views = self._answer_in_context(frame, began)
        else:
            kind, result, views = self._core.methods.answer(method, body, buffers)
        n_out = 0 if kind > _ERROR else len(result)
        if views:
            n_out = n_out + sum([view.nbytes for view in views])
        if (
            kind > _ERROR
            or n_out > self._most_at_once
            or (header_data and compression.is_packed(header_data))
        ):
            self._answer_specially(call_id, counts, began, n_in, header_data, (kind, result, views))
            return
        try:
            if views or n_out > _SMALL:
                stream_socket.send_all(self.sock, framing.encode(kind, call_id, b"", result, views))
            else:
                reply = _pack(_MAGIC, kind, 0, 0, call_id, len(result), 0) + result
                n = self._spin.send(reply, _NO_SIGNAL)
                if n != len(reply):
                    stream_socket.send_all(self.sock, [reply[n:]])
        except OSError:
            kind = _ERROR  # the client has not received the result
            raise
        finally:
            took_s = _monotonic() - began
            if kind == _ERROR:
                counts.errors += 1
            # INLINE: MethodCounts.finish(counts, took_s, n_in, n_out)
            bucket = int(took_s * 1e6).bit_length()
            counts.total_s += took_s
            counts.bytes_in += n_in
            counts.bytes_out += n_out
            counts.buckets[bucket] += 1

    def _answer_in_context(self, frame: framing.Fields, began: float) -> Reply:
        """Answer a call that has a deadline or headers, which the method's own calls inherit.

        If some arguments are streams, the method runs on another thread. This thread goes on reading,
        because the items of the streams arrive on this connection.
        """
        _, call_id, method, body, buffers, timeout_us, header_data = frame
        until = None
        if timeout_us:
            until = (self._noticed_at or began) + timeout_us * 1e-6
            if until < began:
                return framing.NOT_RUN, framing.LATE, []
        if not header_data:
            token = _serve_for(CallContext(until))
            try:
                return self._core.methods.answer(method, body, buffers)
            finally:
                _serve_no_more(token)
        headers = framing.decode_headers(header_data)
        body, buffers = compression.unpack_if_packed(headers, body, buffers, self._core.max_bytes)
        call_context = CallContext(
            until, headers.get(framing.TRACE, b""), headers.get(framing.RECORDED, b"")
        )
        answer = partial(self._core.methods.answer_for, call_context, method, body, buffers)
        count = headers.get(framing.ARGUMENT_STREAMS)
        if count is None:
            return answer()
        n_streams = decode_count(count)
        counts = self._counts[method]
        began = _monotonic()
        n_in = framing.size(body, buffers)
        streams = self._open_streams(method, counts)
        reply = partial(
            self._answer_specially, call_id, counts, began, n_in, header_data, streams=streams
        )
        streams.run_method(n_streams, answer, reply)
        return ANSWERED_SEPARATELY, b"", []

    def _answer_specially(
        self,
        call_id: int,
        counts: MethodCounts,
        began: float,
        n_in: int,
        headers_in: framing.Chunk,
        reply: Reply,
        streams: ServerStreamCall | None = None,
    ) -> None:
        """Send a reply that isn't a small result, or arrange to send it once its promise is done.

        `streams` are the streams of this call, if some of its arguments are streams.
        """
        kind, result, _ = reply
        if kind == PROMISE:
            promise: Promise = result
            self._pending_promises.add(promise)

            def send() -> None:
                try:
                    outcome = encode_outcome(promise)
                    self._answer_specially(
                        call_id, counts, began, n_in, headers_in, outcome, streams
                    )
                except OSError:
                    self.cut()  # the thread that reads then closes the connection
                self._pending_promises.discard(promise)
                if self._has_ended and self._streams is not None:
                    self.close()  # without a reader there is no credit
                elif self._has_ended:
                    self.part()

            # This frees the thread. A thread of the pool sends the answer, because sending may block.
            self._core.send_when_done(promise, send)
            # If the call has streams, another thread reads. That thread may have seen the end of the
            # connection before the promise was added above. Then it did not cancel the promise.
            if self._has_ended and not self._core.is_stopping:
                promise.cancel()
            return
        if kind == framing.STREAM:
            opened = streams or self._open_streams(b"", counts)
            counts.finish(_monotonic() - began, n_in, 0)
            opened.send_items(result, partial(self._end_streams, opened))
            return
        if kind == ANSWERED_SEPARATELY:
            return
        if streams is not None:
            streams.finish()
        kind, result, views = fit(reply, self._takes_bytes)
        header_data = b""
        if compression.is_packed(headers_in):
            result, views, header_data = compression.pack_if_worthwhile(result, views)
        n_out = framing.size(result, views)
        try:
            self._write(kind, call_id, result, views, header_data)
        except OSError:
            kind = _ERROR  # the client has not received the result
            raise
        finally:
            if kind != _RESULT:
                counts.errors += 1
            counts.finish(_monotonic() - began, n_in, n_out)
        if streams is not None:
            self._end_streams(streams)

    def _write(
        self, kind: int, call_id: int, body: bytes, views: list[memoryview], header_data: bytes
    ) -> None:
        """Write one frame. `views` may be empty afterwards."""
        stream_socket.send_all(
            self.sock, framing.encode(kind, call_id, b"", body, views, 0, header_data)
        )

    def _open_streams(self, method: bytes, counts: MethodCounts) -> ServerStreamCall:
        from launchpad.courier.server.stream_call import ServerStreamCall

        streams = ServerStreamCall(self, self._core, method, counts, self._takes_bytes)
        with self._streams_lock:
            self._streams = streams
        return streams

    def _end_streams(self, streams: ServerStreamCall) -> None:
        with self._streams_lock:
            # The connection may already have the streams of the next call.
            if self._streams is not streams:
                return
            self._streams = None
        if self._core.is_stopping:
            self.hang_up()


class ShmServerConnection(SerialConnection):
    """A serial connection that shares memory with its client. Large buffers bypass the socket, both ways."""

    def __init__(self, sock: Socket, core: ServerServices, hello: handshake.ClientHello) -> None:
        from launchpad.courier.shm import socket as shm_socket  # late: it takes a while to import

        self._shm = shm_socket.ShmSocket(sock)
        super().__init__(self._shm, core, hello)
        self._spin = SpinWaiter(self._shm, shm_socket.WINDOW_S)

    def _received(self, n: int) -> list[framing.Fields]:
        """Return the frames that were read, with the calls' buffers. Refuse calls whose buffers can't be had.

        A call doesn't begin if a later frame cancels the call, as a future's `cancel` does.
        """
        frames: list[framing.Fields] = []
        for frame in super()._received(n):
            if frame[0] == framing.CANCEL and frame[1]:  # with id 0 the frame cancels a stream
                frames = [earlier for earlier in frames if earlier[1] != frame[1]]
                continue
            try:
                frames.append(self._shm.open(frame, self._core.max_bytes))
            except OSError:
                from launchpad.courier.shm.socket import refusal

                stream_socket.send_all(self.sock, refusal(frame))
        return frames

    def _received_alone(self, n: int) -> framing.Fields | None:
        return self._shm.open_alone(self._decoder, self._core.max_bytes, n)

    def _write(
        self, kind: int, call_id: int, body: bytes, views: list[memoryview], header_data: bytes
    ) -> None:
        shared = self._shm.wrap(views)
        if shared is None:
            super()._write(kind, call_id, body, views, header_data)
            return
        try:
            # An argument may be freed with the views. That must happen before the caller has the answer.
            views.clear()
            header_data += self._shm.describe(shared)
            super()._write(kind, call_id, body, shared.small, header_data)
        finally:
            shared.release()
