"""Schedule: the decisions of what a pool sends next, and to which worker. Pure, and for one thread.

    add ──▶ queue: calls of maps, not cut yet; chunks ──next──▶ Send(frame) ──▶ in flight, at a worker
              ▲                                                                    │
              └── give_back: it has not begun, or it may run twice ────────────────┤
                                                                        end: its outcome is known

Rules:
1. A worker has one frame in flight for each slot. A second frame for each slot is sent ahead if its calls may
   run twice, so that no slot waits for the network. Other frames are not sent ahead, because the pool must
   know for certain whether they have begun.
2. A frame takes about `FRAME_S`, judging by earlier calls of its function. It is never larger than half of a
   slot's share of the waiting calls, so that all workers finish at about the same time.
3. Chunks of several submits share a frame only if they may run twice.
4. If a worker is free and no calls wait, the pool takes back a frame that it sent ahead to another worker.
5. Chunks that were given back are sent first.
"""

from __future__ import annotations

import itertools
import math
import queue
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from launchpad.courier.client.future import CourierFuture
from launchpad.pools.function import PoolFunction
from launchpad.pools.packing import Call, size_of

FRAME_S = 0.02
FRAME_BYTES = 8 << 20
_MOST_CALLS = 10_000
_AHEAD = 2


@dataclass(eq=False)
class CallChunk:
    """Calls of one function that run one after the other, and the future that waits for them.

    Attributes:
        is_part: True if the chunk is part of a map. Then its future gets (results, error). Otherwise the
            future gets the single result or the error.
        times_lost: How often a worker has ended that may have begun the chunk.
        is_alone: True if the chunk must not share a frame.
    """

    function: PoolFunction
    calls: Sequence[Call]
    future: Future[Any]
    is_part: bool = False
    times_lost: int = 0
    is_alone: bool = False
    is_begun: bool = False

    def begin(self) -> bool:
        """Mark the chunk as begun, so that it can't be cancelled. False if it was cancelled before."""
        if not self.is_begun:
            self.is_begun = self.future.set_running_or_notify_cancel()
        return self.is_begun


@dataclass(eq=False)
class MapCalls:
    """The calls of a map. They are cut into chunks, in order, when a worker has room."""

    function: PoolFunction
    chunksize: int | None
    uncut: deque[Call] = field(default_factory=deque)
    chunks: queue.SimpleQueue[Future[Any]] = field(default_factory=queue.SimpleQueue)
    is_dropped: bool = False

    def cut(self, n: int) -> CallChunk:
        """Cut the next n calls into a chunk, and append its future to `chunks`."""
        calls = [self.uncut.popleft() for _ in range(min(n, len(self.uncut)))]
        chunk = CallChunk(self.function, calls, CourierFuture(), is_part=True)
        self.chunks.put(chunk.future)
        return chunk


class MemberState(Enum):
    """The state of a worker, as far as its pool knows."""

    # The pool has asked the worker if it is up. The worker may be starting or restarting.
    STARTING = "starting"
    UP = "up"
    # The worker did not answer, and the pool will ask again.
    UNREACHED = "unreached"
    # The worker will not come back.
    GONE = "gone"


@dataclass(eq=False)
class PoolMember:
    """A pool's view of a worker."""

    name: str
    client: Any = None
    state: MemberState = MemberState.STARTING
    slots: int = 1
    frames: dict[str, Frame] = field(default_factory=dict)
    known: set[bytes] = field(default_factory=set)
    """The digests of the functions that were sent to the worker."""
    end: BaseException | None = None
    n_sent: int = 0
    probe_at: float = 0.0
    """When to ask the worker again while it is UNREACHED, in monotonic seconds."""


@dataclass(eq=False)
class Frame:
    """Chunks that are sent together."""

    name: str
    member: PoolMember
    chunks: list[CallChunk]
    is_wanted_back: bool = False


@dataclass(frozen=True)
class Send:
    """The decision to send a frame to its member."""

    frame: Frame


@dataclass(frozen=True)
class TakeBack:
    """The decision to ask a frame's member not to begin it."""

    frame: Frame


class Schedule:
    """The chunks and maps that wait, and the frames that are in flight."""

    def __init__(self, members: Sequence[PoolMember], name: str = "") -> None:
        self.members = tuple(members)
        self._queue: deque[MapCalls | CallChunk] = deque()
        # The maps that are in `_queue`.
        self._maps: list[MapCalls] = []
        self._name = name
        self._numbers = itertools.count()

    @property
    def is_idle(self) -> bool:
        """True if nothing waits and nothing is in flight."""
        return not self._queue and not any(member.frames for member in self.members)

    @property
    def slots(self) -> int:
        """The number of slots of all members that are not gone, at least 1."""
        return max(1, sum(m.slots for m in self.members if m.state is not MemberState.GONE))

    def add(self, work: MapCalls | CallChunk) -> None:
        """Queue a chunk, or the current calls of a map."""
        if isinstance(work, MapCalls):
            if work in self._maps or work.is_dropped:
                return
            self._maps.append(work)
        self._queue.append(work)

    def drop(self, work: MapCalls) -> None:
        """Drop the calls of a map that were not cut yet, because its results are no longer needed."""
        work.is_dropped = True
        work.uncut.clear()
        if work in self._maps:
            self._maps.remove(work)
            self._queue.remove(work)

    def give_back(self, chunks: Iterable[CallChunk]) -> None:
        """Queue chunks again that have not run, or may run twice. They are sent next."""
        self._queue.extendleft(reversed(list(chunks)))

    def end(self, frame: Frame) -> None:
        """Remove a frame that is no longer in flight."""
        frame.member.frames.pop(frame.name, None)

    def next(self) -> Send | TakeBack | None:
        """Return the next thing to do; None if there is nothing to do until something changes."""
        up = [member for member in self.members if member.state is MemberState.UP]
        if not up:
            return None
        least = min(up, key=lambda member: (_load(member), member.n_sent))
        while self._queue:
            is_ahead = _load(least) >= 1
            if is_ahead and (_load(least) >= _AHEAD or not self._queue[0].function.is_idempotent):
                return None
            chunks = self._take()
            if chunks:
                frame = Frame(f"{self._name}{next(self._numbers)}", least, chunks)
                least.frames[frame.name] = frame
                least.n_sent += 1
                return Send(frame)
        most = max(up, key=_load)
        if _load(least) < 1 < _load(most):
            frame = list(most.frames.values())[-1]
            if not frame.is_wanted_back:
                frame.is_wanted_back = True
                return TakeBack(frame)
        return None

    def drain(self) -> list[CallChunk]:
        """Remove and return all chunks without an outcome. The uncut rest of each map becomes one chunk."""
        chunks: list[CallChunk] = []
        for member in self.members:
            for frame in member.frames.values():
                chunks += frame.chunks
        for work in self._queue:
            chunks.append(work if isinstance(work, CallChunk) else work.cut(len(work.uncut)))
        self._queue.clear()
        self._maps.clear()
        for member in self.members:
            member.frames.clear()
        return chunks

    def cancel_queued(self) -> None:
        """Cancel all chunks and calls that were not sent."""
        queue = self._queue
        self._queue = deque()
        self._maps.clear()
        for work in queue:
            chunk = work if isinstance(work, CallChunk) else work.cut(len(work.uncut))
            if chunk.is_begun:
                # A chunk that was given back counts as running.
                self._queue.append(chunk)
            elif chunk.future.cancel():
                chunk.future.set_running_or_notify_cancel()

    def frame_calls(self, function: PoolFunction) -> int:
        """Return how many calls of a function fill a frame. Return 1 until their duration is known."""
        if function.mean_s is None:
            return 1
        return max(1, min(_MOST_CALLS, int(FRAME_S / max(function.mean_s, 1e-9))))

    def _take(self) -> list[CallChunk]:
        """Take the chunks of the next frame from the queue.

        Return an empty list if the chunks at the head of the queue were cancelled.
        """
        head = self._queue[0]
        n_waiting = len(self._queue) - len(self._maps) + sum(len(m.uncut) for m in self._maps)
        most = min(self.frame_calls(head.function), math.ceil(n_waiting / (2 * self.slots)))
        chunks: list[CallChunk] = []
        n_calls = 0
        while self._queue and self._queue[0].function is head.function and n_calls < max(1, most):
            work = self._queue[0]
            if isinstance(work, MapCalls):
                n = work.chunksize or _fitting(work.uncut, most - n_calls)
                chunk = work.cut(n)
                if not work.uncut:
                    self._maps.remove(work)
                    self._queue.popleft()
            else:
                chunk = work
                if chunk.is_alone and chunks:
                    break
                self._queue.popleft()
            if not chunk.begin():
                continue
            chunks.append(chunk)
            n_calls += len(chunk.calls)
            if chunk.is_alone or not head.function.is_idempotent:
                break
        return chunks


def _load(member: PoolMember) -> float:
    """Return the number of frames in flight for each slot of a member."""
    return len(member.frames) / member.slots


def _fitting(calls: deque[Call], most: int) -> int:
    """Return how many of the next calls fit into a frame, supposing that all are as large as the first."""
    return max(1, min(most, FRAME_BYTES // max(1, size_of(calls[0]))))
