"""The calls of a pipeline that have no outcome yet."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from launchpad.courier.clients.deadlines import Deadlines
from launchpad.courier.clients.in_flight import InFlight
from launchpad.courier.clients.peer import NotRun, Peer
from launchpad.courier.protocol import wire

_monotonic = time.monotonic
_loads = pickle.loads
_RESULT, _STREAM = wire.RESULT, wire.STREAM


class Ledger:
    """Calls by id. Whoever takes one out of it settles it, and nobody else does. Safe from any thread.

    Args:
        drop_stream: tells the server that nobody comes for the stream which it has answered with.
    """

    def __init__(self, peer: Peer, drop_stream: Callable[[int], None]) -> None:
        self._peer = peer
        self._drop_stream = drop_stream
        self.calls: dict[int, InFlight] = {}
        self.deadlines = Deadlines(self.calls)

    def enter(self, call: InFlight) -> bool:
        """True if nobody has an earlier deadline."""
        self.calls[call.call_id] = call
        return call.deadline is not None and self.deadlines.add(call.deadline, call.call_id)

    def snapshot(self) -> list[InFlight]:
        return list(self.calls.values())

    def take(self, call: InFlight) -> bool:
        """False if another thread has."""
        return self.calls.pop(call.call_id, None) is not None

    def fail(self, call: InFlight, error: Exception) -> None:
        """Does nothing if it has an outcome by now."""
        if self.take(call):
            call.fail(error)

    def fail_all(self, error: Exception | Callable[[bytes], Exception]) -> None:
        """All with one error, or each with what is said of its method."""
        for call in self.snapshot():
            self.fail(call, error if isinstance(error, Exception) else error(call.method))

    def fail_impatient(self) -> None:
        """The server takes no calls: fails those that do not wait until it does."""
        self._peer.raise_verdict()
        for call in self.snapshot():
            if not call.options.wait_for_ready and not call.is_sent:
                self._check(call, self._peer.check_wait, call.options)

    def fail_too_large(self, max_bytes: int) -> None:
        """The server takes no more than that at once, as `peer` knows by now."""
        for call in self.snapshot():
            if call.size > max_bytes:
                self._check(call, self._peer.check_size, call.size)

    def fail_late(self) -> None:
        for call_id in self.deadlines.take_late(_monotonic()):
            if (call := self.calls.get(call_id)) is not None:
                self.fail(call, self._peer.late(call.method, call.options))

    def restamp(self) -> None:
        """Calls that have waited to be sent have less time left by now."""
        now = _monotonic()
        for call in self.snapshot():
            if call.deadline is not None:
                call.frame = _with_timeout(call.frame, call.deadline - now)
                if call.call_id not in self.calls:
                    call.frame = b""  # settled meanwhile

    def settle(self, frames: Iterable[wire.Fields]) -> list[InFlight]:
        """Gives the calls their answers; returns those that the server has sent back."""
        again: list[InFlight] = []
        take, now = self.calls.pop, _monotonic()
        for frame in frames:
            kind, call_id, _, body, buffers, _, notes_in = frame
            call = take(call_id, None)
            if call is None:  # cancelled, or too late
                if kind == _STREAM:
                    self._drop_stream(call_id)
                continue
            if kind != _RESULT or buffers or notes_in:
                self._settle_otherwise(call, frame, again)
                continue
            try:
                call.value = _loads(body)
            except BaseException:
                self._settle_otherwise(call, frame, again)
                continue
            # What `call.succeed` does, for the many.
            call.counts.finish(now - call.began, len(body), call.size)
            call.frame = b""
            call.lines = None
            call.is_settled = True
            if call.is_watched:
                call.tell()
        return again

    def _check(self, call: InFlight, check: Callable[[bytes, Any], None], value: Any) -> None:
        try:
            check(call.method, value)
        except Exception as error:
            self.fail(call, error)

    def _settle_otherwise(self, call: InFlight, frame: wire.Fields, again: list[InFlight]) -> None:
        if frame[0] == _STREAM and call.lines is not None:
            from launchpad.courier.streams.stream_calls import attach_apart

            attach_apart(call.lines, call.method, bytes(frame[3]), partial(_settle, call))
            return
        try:
            value = self._peer.open_reply(call.method, call.options, frame)
        except NotRun:
            again.append(call)
        except BaseException as error:
            call.fail(error)
        else:
            call.succeed(value, wire.size(frame[3], frame[4]))


def _settle(call: InFlight, run: Callable[[], Any]) -> None:
    try:
        value = run()
    except BaseException as error:
        call.fail(error)
    else:
        call.succeed(value, 0)


def _with_timeout(
    frame: bytes | Sequence[wire.Chunk], timeout_s: float
) -> bytes | Sequence[wire.Chunk]:
    timeout_us = max(1, int(timeout_s * 1e6))
    if isinstance(frame, bytes):
        return wire.with_timeout(frame, timeout_us)
    return [wire.with_timeout(bytes(frame[0]), timeout_us), *frame[1:]]
