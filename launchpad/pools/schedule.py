"""What a pool sends next, and to which worker. It touches nothing, and is used by one thread.

    add ──▶ queue: calls of maps, not cut yet; chunks ──next──▶ Send(frame) ──▶ in flight, at a worker
              ▲                                                                    │
              └── give_back: not begun; begun, and may run twice ──────────────────┤
                                                                        end: its outcome is known

Rules:
1. A worker has one frame for each slot in flight. One that may run twice is also sent ahead, up to two for
   each slot, so that none waits for the network; of any other it must be certain whether it has begun.
2. A frame takes about `FRAME_S`, by what calls of its function have taken so far, and never more than half of
   a slot's share of what waits: so all workers end at about the same time.
3. Chunks of several submits share a frame only where they may run twice.
4. When nothing waits and a worker is free, a frame that was sent ahead to another is taken back.
5. What was given back is sent first.
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
    """Calls of one function that are run one after the other, and what waits for them.

    Attributes:
        is_part: Of a map: the future gets (results, error). Else it gets the one result, or the error.
        times_lost: How often a worker has ended that may have begun it.
        is_alone: It shares no frame.
    """

    function: PoolFunction
    calls: Sequence[Call]
    future: Future[Any]
    is_part: bool = False
    times_lost: int = 0
    is_alone: bool = False
    is_begun: bool = False

    def begin(self) -> bool:
        """False if it was cancelled."""
        if not self.is_begun:
            self.is_begun = self.future.set_running_or_notify_cancel()
        return self.is_begun


@dataclass(eq=False)
class MapCalls:
    """The calls of a map: cut into chunks when a worker has room, in their order."""

    function: PoolFunction
    chunksize: int | None
    uncut: deque[Call] = field(default_factory=deque)
    chunks: queue.SimpleQueue[Future[Any]] = field(default_factory=queue.SimpleQueue)
    is_dropped: bool = False

    def cut(self, n: int) -> CallChunk:
        """The next calls, whose future follows those of the chunks before."""
        calls = [self.uncut.popleft() for _ in range(min(n, len(self.uncut)))]
        chunk = CallChunk(self.function, calls, CourierFuture(), is_part=True)
        self.chunks.put(chunk.future)
        return chunk


class MemberState(Enum):
    """What a pool knows of a worker."""

    STARTING = "starting"  # or starting again: it was asked whether it is up
    UP = "up"
    UNREACHED = "unreached"  # it is to be asked again
    GONE = "gone"  # for good


@dataclass(eq=False)
class PoolMember:
    """A worker, as its pool sees it."""

    name: str
    client: Any = None
    state: MemberState = MemberState.STARTING
    slots: int = 1
    frames: dict[str, Frame] = field(default_factory=dict)
    known: set[bytes] = field(default_factory=set)
    """The functions that were sent to it."""
    end: BaseException | None = None
    n_sent: int = 0
    probe_at: float = 0.0
    """When it is asked again, if it is not reached; monotonic seconds."""


@dataclass(eq=False)
class Frame:
    """Chunks that were sent together."""

    name: str
    member: PoolMember
    chunks: list[CallChunk]
    is_wanted_back: bool = False


@dataclass(frozen=True)
class Send:
    """Send this frame to its member."""

    frame: Frame


@dataclass(frozen=True)
class TakeBack:
    """Ask the frame's member not to begin it."""

    frame: Frame


class Schedule:
    """Which chunk goes where."""

    def __init__(self, members: Sequence[PoolMember], name: str = "") -> None:
        self.members = tuple(members)
        self._queue: deque[MapCalls | CallChunk] = deque()
        self._maps: list[MapCalls] = []  # those in the queue
        self._name = name
        self._numbers = itertools.count()

    @property
    def is_idle(self) -> bool:
        """Nothing waits, and nothing is in flight."""
        return not self._queue and not any(member.frames for member in self.members)

    @property
    def slots(self) -> int:
        """Of all members that may still work."""
        return max(1, sum(m.slots for m in self.members if m.state is not MemberState.GONE))

    def add(self, work: MapCalls | CallChunk) -> None:
        """Queues a chunk, or the calls that a map has now."""
        if isinstance(work, MapCalls):
            if work in self._maps or work.is_dropped:
                return
            self._maps.append(work)
        self._queue.append(work)

    def drop(self, work: MapCalls) -> None:
        """Its results are not wanted any more: what was not cut is never sent."""
        work.is_dropped = True
        work.uncut.clear()
        if work in self._maps:
            self._maps.remove(work)
            self._queue.remove(work)

    def give_back(self, chunks: Iterable[CallChunk]) -> None:
        """These have not run, or may run again: they are the next to be sent."""
        self._queue.extendleft(reversed(list(chunks)))

    def end(self, frame: Frame) -> None:
        """It is not in flight any more."""
        frame.member.frames.pop(frame.name, None)

    def next(self) -> Send | TakeBack | None:
        """What to do now; None: nothing, until something changes."""
        up = [member for member in self.members if member.state is MemberState.UP]
        if not up:
            return None
        least = min(up, key=lambda member: (_load(member), member.n_sent))
        while self._queue:
            is_ahead = _load(least) >= 1
            if is_ahead and (_load(least) >= _AHEAD or not self._queue[0].function.is_idempotent):
                return None
            if chunks := self._take():
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
        """All chunks that have no outcome, in flight or not; of maps, all that is left as one."""
        chunks = [chunk for m in self.members for f in m.frames.values() for chunk in f.chunks]
        for work in self._queue:
            chunks.append(work if isinstance(work, CallChunk) else work.cut(len(work.uncut)))
        self._queue.clear()
        self._maps.clear()
        for member in self.members:
            member.frames.clear()
        return chunks

    def cancel_queued(self) -> None:
        """Cancels what was not sent."""
        queued, self._queue = self._queue, deque()
        self._maps.clear()
        for work in queued:
            chunk = work if isinstance(work, CallChunk) else work.cut(len(work.uncut))
            if chunk.is_begun:
                self._queue.append(chunk)  # it was given back: it counts as running
            elif chunk.future.cancel():
                chunk.future.set_running_or_notify_cancel()

    def frame_calls(self, function: PoolFunction) -> int:
        """How many calls of a function a frame has, by their duration; 1 until that is known."""
        if function.mean_s is None:
            return 1
        return max(1, min(_MOST_CALLS, int(FRAME_S / max(function.mean_s, 1e-9))))

    def _take(self) -> list[CallChunk]:
        """The chunks of the next frame; none if those at the head were cancelled."""
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
    """Frames for each slot."""
    return len(member.frames) / member.slots


def _fitting(calls: deque[Call], most: int) -> int:
    """How many of the next calls go into a frame, if all are as large as the first."""
    return max(1, min(most, FRAME_BYTES // max(1, size_of(calls[0]))))
