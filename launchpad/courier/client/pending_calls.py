"""The calls of a pipeline that have no outcome yet, and their deadlines."""

from __future__ import annotations

import heapq
import pickle
import time
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

from launchpad.courier.client import call_errors
from launchpad.courier.client.call import NotRun, check_wait, decode_reply
from launchpad.courier.client.future import PipelinedFuture
from launchpad.courier.client.server_info import ServerInfo
from launchpad.courier.codec import pickling
from launchpad.courier.interruptions import Lock, is_interruption
from launchpad.courier.protocol import framing, joined
from launchpad.courier.shm import segments

_monotonic = time.monotonic
_loads = pickle.loads
_loads_arrays = pickling.loads
_SHORTEST = pickling.SHORTEST
_RESULT = framing.RESULT
_RESULTS = framing.RESULTS
_STREAM = framing.STREAM


class PendingCalls:
    """The pending calls by id. Only the thread that takes a call out completes that call. Thread-safe."""

    def __init__(self, peer: ServerInfo, drop_stream: Callable[[int], None]) -> None:
        self._peer = peer
        self._drop_stream = drop_stream  # called for a stream that nothing will fetch
        self.calls: dict[int, PipelinedFuture] = {}
        self.deadlines = DeadlineHeap(self.calls)
        self._attaching: set[PipelinedFuture] = set()
        self._completing: PipelinedFuture | None = None

    @property
    def is_needed(self) -> bool:
        """True if the connection must stay open. When it ends, the server drops streams not yet fetched."""
        return bool(self.calls or self._attaching)

    def add(self, call: PipelinedFuture) -> bool:
        """Add a call. Return True if this call now has the earliest deadline."""
        self.calls[call.call_id] = call
        return call.deadline is not None and self.deadlines.add(call.deadline, call.call_id)

    def fail(self, call: PipelinedFuture, error: BaseException) -> bool:
        """Fail a call. If the call already has an outcome, do nothing and return False."""
        if self.calls.pop(call.call_id, None) is None:
            return False
        call.fail(error)
        return True

    def fail_all(self, error: Exception | Callable[[bytes], Exception]) -> None:
        """Fail all calls, either with the same error, or each with an error about its method."""
        for call in list(self.calls.values()):
            self.fail(call, error if isinstance(error, Exception) else error(call.method))

    def drop_inherited(self) -> None:
        """End all calls in a forked child. They belong to the parent."""
        calls = [*self.calls.values(), *self._attaching]
        if self._completing is not None and not self._completing.is_completed:
            calls.append(self._completing)
        self.calls.clear()
        self._attaching.clear()
        self._completing = None
        for call in calls:
            call.drop_inherited()

    def fail_not_ready(self) -> None:
        """Fail the unsent calls that must not wait until the server is up."""
        self._peer.raise_if_failed()
        for call in list(self.calls.values()):
            if not call.options.wait_for_ready and not call.is_sent:
                try:
                    check_wait(self._peer, call.method, call.options)
                except Exception as error:
                    self.fail(call, error)

    def fail_too_large(self) -> None:
        """Fail the calls that are too large for the server. If its limit is low, don't join small calls."""
        for call in list(self.calls.values()):
            args = call.frame  # read this once: a thread that completes the call replaces it
            if self._peer.takes_bytes < joined.LIMIT and type(args) is tuple:
                body = pickle.dumps((args, {}), 5)
                call.size = len(body)
                call.frame = framing.encode_small(framing.CALL, call.call_id, call.method, body)
                if call.call_id not in self.calls:
                    call.frame = b""  # another thread has completed it
            if call.size > self._peer.takes_bytes:
                try:
                    call_errors.check_size(self._peer, call.method, call.size)
                except Exception as error:
                    self.fail(call, error)

    def fail_late(self) -> None:
        for call_id in self.deadlines.pop_expired(_monotonic()):
            call = self.calls.get(call_id)
            if call is not None:
                self.fail(call, call_errors.late(self._peer, call.method, call.options))

    def refresh_timeouts(self) -> None:
        """Update the remaining time in the frames of calls that have waited to be sent."""
        now = _monotonic()
        for call in list(self.calls.values()):
            if call.deadline is not None:
                frame = call.frame
                timeout_us = max(1, int((call.deadline - now) * 1e6))
                if isinstance(frame, bytes):
                    call.frame = framing.with_timeout(frame, timeout_us)
                elif isinstance(frame, list):
                    call.frame = [framing.with_timeout(bytes(frame[0]), timeout_us), *frame[1:]]
                if call.call_id not in self.calls:
                    call.frame = b""  # another thread has completed it

    def complete(self, frames: Iterable[framing.Fields]) -> list[PipelinedFuture]:
        """Give the calls their answers. Return the calls that the server sent back and did not run."""
        again: list[PipelinedFuture] = []
        take = self.calls.pop
        for frame in frames:
            kind, call_id, _, body, buffers, _, headers_in = frame
            if kind == _RESULTS:
                self._complete_joined(frame)
                continue
            call = self._completing = take(call_id, None)
            if call is None:  # cancelled, or too late
                if kind == _STREAM:
                    self._drop_stream(call_id)
                continue
            if kind != _RESULT or buffers or headers_in:
                self._complete_other(call, frame, again)
                continue
            try:
                call.value = _loads(body) if len(body) < _SHORTEST else _loads_arrays(body)
            except BaseException as error:
                if is_interruption(error):  # this may be the thread of an event loop
                    call.fail(call_errors.lost(self._peer, call.method))
                    raise
                self._complete_other(call, frame, again)
                continue
            # INLINE: PipelinedFuture._complete(call, len(body))
            call.counts.finish(_monotonic() - call.began, len(body), call.size)
            call.frame = b""
            call.channel = None
            call.is_completed = True
            if call.is_watched:
                call.notify()
        self._completing = None
        return again

    def _complete_joined(self, frame: framing.Fields) -> None:
        ids, values = joined.decode(frame)
        take = self.calls.pop
        size, remainder = divmod(len(frame[3]), max(1, len(ids)))
        for call_id, value in zip(ids, values, strict=True):
            call = take(call_id, None)
            if call is None:  # cancelled, or too late
                continue
            call.value = value
            # INLINE: PipelinedFuture._complete(call, size + remainder)
            call.counts.finish(_monotonic() - call.began, size + remainder, call.size)
            call.frame = b""
            call.channel = None
            call.is_completed = True
            if call.is_watched:
                call.notify()
            remainder = 0

    def _complete_other(
        self, call: PipelinedFuture, frame: framing.Fields, again: list[PipelinedFuture]
    ) -> None:
        if frame[0] == _STREAM and call.channel is not None:
            from launchpad.courier.client.stream_calls import attach, run_in_thread

            self._attaching.add(call)
            complete = partial(self._complete_attached, call)
            ticket = bytes(frame[3])
            try:
                run_in_thread(complete, attach, call.channel, call.method, ticket)
            except RuntimeError as error:  # no thread could be started
                self._attaching.discard(call)
                self._drop_stream(call.call_id)
                call.fail(error)
            return
        if call.channel is not None and segments.is_worthwhile(frame[4]):
            call.channel.shm_methods.add(call.method)  # later calls of the method share memory
        try:
            value = decode_reply(self._peer, call.method, call.options, frame)
        except NotRun:
            again.append(call)
        except BaseException as error:
            call.fail(error)
        else:
            call.succeed(value, framing.size(frame[3], frame[4]))

    def _complete_attached(self, call: PipelinedFuture, run: Callable[[], Any]) -> None:
        try:
            try:
                value = run()
            finally:
                self._attaching.discard(call)
        except BaseException as error:
            call.fail(error)
        else:
            call.succeed(value, 0)


# How many entries of finished calls the heap may hold before it removes them.
_SLACK = 1000


class DeadlineHeap:
    """The deadlines of calls, with the earliest on top. Safe from any thread."""

    def __init__(self, open_calls: Collection[int]) -> None:
        self._open = open_calls  # ids; entries of other calls are removed now and then
        # This lock is held for each change. A change has several steps, between which the list isn't a heap.
        self._lock = Lock()
        self._heap: list[tuple[float, int]] = []

    def add(self, deadline: float, call_id: int) -> bool:
        """Add the deadline of a call. Return True if this deadline is now the earliest."""
        entry = (deadline, call_id)
        with self._lock:
            heapq.heappush(self._heap, entry)
            if len(self._heap) > 2 * len(self._open) + _SLACK:
                self._heap = [item for item in self._heap if item[1] in self._open]
                heapq.heapify(self._heap)
            return self._heap[0] is entry

    def first(self) -> float | None:
        """Return the earliest deadline of the calls that are not done, or None."""
        with self._lock:
            while self._heap and self._heap[0][1] not in self._open:
                heapq.heappop(self._heap)
            return self._heap[0][0] if self._heap else None

    def pop_expired(self, now: float) -> list[int]:
        """Remove and return the ids of the calls whose deadline has passed."""
        late_ids = []
        with self._lock:
            while self._heap and self._heap[0][0] <= now:
                late_ids.append(heapq.heappop(self._heap)[1])
        return late_ids
