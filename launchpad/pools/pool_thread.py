"""PoolThread: the thread of a pool. It owns the schedule, sends frames of calls and takes their outcomes.

    add, feed, shut ──▶ inbox ──▶ the thread ──▶ Schedule ──▶ client.futures.run_frame
    outcomes of frames ──▲             └──▶ futures get their results

Outcomes of a frame:
    done                                  its futures have results or errors
    not sent, not begun, taken back       its chunks are sent again, to any worker
    its worker ended, or was stopped      chunks that may run twice are sent again, `MAX_LOST` times at most;
                                          the futures of the other chunks raise OutcomeUnknown
    no worker is left                     all open futures raise WorkerFailed
    the program stops                     all open futures raise Stopped
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future, InvalidStateError
from functools import partial
from typing import Any

from launchpad.courier import (
    Client,
    DeadlineExceeded,
    NotSent,
    OutcomeUnknown,
    Refused,
    WorkerFailed,
    fork,
    stats,
)
from launchpad.courier.codec import pickling
from launchpad.courier.interruptions import RLock
from launchpad.courier.own_threads import OwnThread
from launchpad.errors import NotRunningError, Stopped
from launchpad.pools.packing import Call, unpack_result
from launchpad.pools.schedule import (
    CallChunk,
    Frame,
    MapCalls,
    MemberState,
    PoolMember,
    Schedule,
    Send,
)
from launchpad.pools.worker import DONE, STOPPED, STOPPING, UNKNOWN_FUNCTIONS
from launchpad.runtime import context

MAX_LOST = 20
"""The number of workers that may end while they run the same chunk.

After that, the pool doesn't try the chunk again, because the chunk itself may be what ends the workers.
"""

_POLL_S = 0.25
_MOST_KNOWN = 1024


class PoolThread:
    """The thread that runs a pool's calls on workers, until `shut` or the program's stop.

    Its public methods are safe from any thread.

    Args:
        clients: Clients of the workers.
    """

    def __init__(self, clients: Iterable[Client[Any]]) -> None:
        self._context = context.try_current()
        members = []
        for client in clients:
            sends = client.with_options(wait_for_ready=False, timeout_s=None, idempotent=False)
            server_stats = stats(sends)
            members.append(PoolMember(server_stats.server or server_stats.address, sends))
        self.schedule = Schedule(members, f"{os.urandom(8).hex()}-")
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        # Reentrant, because the garbage collector may call `shut` in a thread that holds the lock.
        self._lock = RLock()
        self._is_shut = False
        self._end: BaseException | None = None
        self._maps: weakref.WeakSet[MapCalls] = weakref.WeakSet()
        for member in members:
            self._probe(member)
        self._thread = OwnThread(target=self._run, name="launchpad-pool")
        self._thread.start()
        fork.drop_in_child(self)

    def drop_inherited(self) -> None:
        """Shut the pool in a forked child. The thread, with all the pool's calls, runs in the parent."""
        # Make a new lock, because another thread may have held the old one at the fork.
        self._lock = RLock()
        self._inbox = queue.SimpleQueue()
        self._is_shut = True
        self._end = NotRunningError(
            f"the thread of this pool does not run here: {fork.describe_child()}, which has it. Make another"
            " pool in the child, lp.pool(workers)."
        )
        for work in tuple(self._maps):
            failed: Future[Any] = Future()
            failed.set_exception(self._end)
            work.chunks = queue.SimpleQueue()
            work.chunks.put(failed)

    def refuse_if_over(self) -> None:
        """Raise RuntimeError if the pool is shut, and Stopped if the program stops."""
        if isinstance(self._end, Stopped):
            raise Stopped
        if isinstance(self._end, NotRunningError):
            raise self._end
        if self._is_shut:
            raise RuntimeError("the pool is shut down, and takes no more work")

    def add(self, chunk: CallChunk) -> None:
        """Run a chunk. Raises the errors of `refuse_if_over`."""
        self._put(partial(self.schedule.add, chunk))

    def feed(self, work: MapCalls, calls: list[Call]) -> None:
        """Run more calls of a map. Raises the errors of `refuse_if_over`."""

        def add() -> None:
            work.uncut.extend(calls)
            self.schedule.add(work)

        self._maps.add(work)
        self._put(add)

    def drop(self, work: MapCalls) -> None:
        """Drop the rest of a map, because its results are no longer needed."""
        self._inbox.put(partial(self.schedule.drop, work))

    def shut(self, *, cancels: bool) -> None:
        """Accept no more work. With `cancels`, cancel the calls that were not sent."""
        with self._lock:
            self._is_shut = True
            self._inbox.put(self.schedule.cancel_queued if cancels else lambda: None)

    def join(self) -> None:
        """Wait until all is done. In a callback that runs in this thread, return at once."""
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _put(self, event: Callable[[], None]) -> None:
        with self._lock:
            self.refuse_if_over()
            self._inbox.put(event)

    # All methods below run in the thread.

    def _run(self) -> None:
        end: BaseException = RuntimeError("the pool is shut down")
        try:
            self._work()
        except BaseException as error:
            # The error is Stopped, or comes from a bug in this class. In either case, no future may wait
            # forever.
            end = error
        with self._lock:
            self._end = end
            self._is_shut = True
        with contextlib.suppress(queue.Empty):
            while True:
                event = self._inbox.get_nowait()
                # An event may fail because its worker can't be called any more.
                with contextlib.suppress(Exception):
                    event()
        self._fail_all(end)

    def _work(self) -> None:
        """Work until the pool is shut and all is done. Raise Stopped if the program stops before that."""
        stop = None if self._context is None else self._context.stop.event
        members = self.schedule.members
        while not (self._is_shut and self.schedule.is_idle and self._inbox.empty()):
            is_unreached = any(m.state is MemberState.UNREACHED for m in members)
            with contextlib.suppress(queue.Empty):
                self._inbox.get(timeout=_POLL_S if stop is not None or is_unreached else None)()
                while True:
                    self._inbox.get_nowait()()
            if stop is not None and stop.is_set():
                raise Stopped
            now = time.monotonic()
            for member in members:
                if member.state is MemberState.UNREACHED and member.probe_at <= now:
                    self._probe(member)
            if all(member.state is MemberState.GONE for member in members):
                self._fail_all(self._none_left())
            while True:
                action = self.schedule.next()
                if action is None:
                    break
                if isinstance(action, Send):
                    self._send(action.frame)
                else:
                    action.frame.member.client.futures.take_back(action.frame.name)

    def _probe(self, member: PoolMember) -> None:
        """Ask a worker if it is up. The answer comes when it is up, or when it is clear that it won't be."""
        member.state = MemberState.STARTING

        def receive(call: Future[int]) -> None:
            self._inbox.put(partial(self._take_hello, member, call))

        client = member.client.with_options(wait_for_ready=True)
        client.futures.hello().add_done_callback(receive)

    def _take_hello(self, member: PoolMember, call: Future[int]) -> None:
        member.probe_at = time.monotonic() + _POLL_S
        try:
            member.slots = call.result() or 1
            member.state = MemberState.UP if call.result() else MemberState.UNREACHED
        except (OutcomeUnknown, CancelledError):
            member.state = MemberState.UNREACHED
        except Exception as error:
            is_up_soon = isinstance(error, NotSent) and not isinstance(error, Refused)
            member.state = MemberState.UNREACHED if is_up_soon else MemberState.GONE
            member.end = error

    def _send(self, frame: Frame) -> None:
        member = frame.member
        functions = {chunk.function.digest: chunk.function.definition for chunk in frame.chunks}
        new = {digest: f for digest, f in functions.items() if digest not in member.known}
        chunks = [(chunk.function.digest, chunk.calls) for chunk in frame.chunks]

        def receive(call: Future[Any]) -> None:
            self._inbox.put(partial(self._take_outcome, frame, call))

        try:
            call = member.client.futures.run_frame(frame.name, new, chunks)
        except Exception as error:
            # One of the arguments cannot be pickled.
            self.schedule.end(frame)
            self._fail(frame, error)
            return
        if len(member.known) > _MOST_KNOWN:
            # Forget which functions the worker got. They are sent again when they are needed.
            member.known.clear()
        member.known.update(new)
        call.add_done_callback(receive)

    def _take_outcome(self, frame: Frame, call: Future[Any]) -> None:
        member = frame.member
        schedule = self.schedule
        if frame.name not in member.frames:
            return
        schedule.end(frame)
        try:
            answer, details = call.result()
        except NotSent:
            schedule.give_back(frame.chunks)
            self._lose(member)
        except (OutcomeUnknown, WorkerFailed, DeadlineExceeded, CancelledError) as error:
            self._run_again(frame, error)
            self._lose(member)
        except Exception as error:
            self._fail(frame, error)
        else:
            if answer == DONE:
                for chunk, outcome in zip(frame.chunks, details, strict=True):
                    _complete(chunk, member, *outcome)
            elif answer == STOPPED:
                self._run_again(frame, None)
                self._lose(member)
            elif answer == STOPPING:
                schedule.give_back(frame.chunks)
                self._lose(member)
            else:
                member.known.difference_update(details if answer == UNKNOWN_FUNCTIONS else ())
                schedule.give_back(frame.chunks)

    def _lose(self, member: PoolMember) -> None:
        """Handle a worker that can't be reached: ask if it is up again, because it may be restarted."""
        if member.state is MemberState.UP:
            self._probe(member)

    def _fail(self, frame: Frame, error: Exception) -> None:
        """Handle the failure of a whole frame.

        If its chunks may run twice, send each chunk again alone, to find the one that causes the failure.
        """
        may_share = len(frame.chunks) > 1
        if may_share and (all(c.function.is_idempotent for c in frame.chunks)):
            for chunk in frame.chunks:
                chunk.is_alone = True
            self.schedule.give_back(frame.chunks)
            return
        for chunk in frame.chunks:
            _set_error(chunk, error)

    def _run_again(self, frame: Frame, error: BaseException | None) -> None:
        """Handle a frame whose chunks may have begun, but have no outcome.

        Send its chunks again, but fail those that must not run twice.
        """
        for chunk in reversed(frame.chunks):
            chunk.times_lost += 1
            if chunk.function.is_idempotent and chunk.times_lost < MAX_LOST:
                self.schedule.give_back([chunk])
                continue
            calls = f"{chunk.function.name!r}"
            if len(chunk.calls) != 1:
                calls = f"one of {len(chunk.calls)} calls of {chunk.function.name!r}"
            end = "was stopped" if error is None else "has ended"
            if chunk.function.is_idempotent:
                advice = f"{chunk.times_lost} workers have ended while they had it: the job may be the cause."
            else:
                advice = (
                    "It is not run again, unless it is declared that it may run twice: @lp.idempotent on the"
                    " function, or lp.pool(workers, idempotent=True)."
                )
            lost = OutcomeUnknown(
                f"the worker {frame.member.name} {end}, and may have run {calls}, perhaps in part."
                f" {advice}",
                server=frame.member.name,
                address=frame.member.client.address,
                method=chunk.function.name,
            )
            lost.__cause__ = error
            _set_error(chunk, lost)

    def _none_left(self) -> WorkerFailed:
        members = self.schedule.members
        why = "; ".join(f"{m.name}: {type(m.end).__name__}: {m.end}" for m in members)
        return WorkerFailed(
            f"no worker of the pool is left. {why}. Give their group a restart policy:"
            " program.group('worker', restart=lp.RestartPolicy())."
        )

    def _fail_all(self, error: BaseException) -> None:
        for chunk in self.schedule.drain():
            _set_error(chunk, error)


def _complete(
    chunk: CallChunk,
    member: PoolMember,
    packed_results: list[Any],
    error: bytes | None,
    seconds: float,
) -> None:
    """Give a chunk's future the results, or the error, of its calls."""
    chunk.function.note(seconds, len(packed_results) + (error is not None))
    results: list[Any] = []
    chunk_error: BaseException | None = None
    try:
        # Append one by one, to keep the results before an error.
        for packed_result in packed_results:
            results.append(unpack_result(packed_result))
    except Exception as unreadable:
        unreadable.add_note(
            f"(the result of {chunk.function.name!r}, which has run at {member.name}, cannot be unpickled"
            " here: its classes have to be importable on both sides)"
        )
        chunk_error = unreadable
    if error is not None and chunk_error is None:
        chunk_error = pickling.decode_error(
            error, server=member.name, address=member.client.address, method=chunk.function.name
        )
    if chunk.is_part:
        chunk.future.set_result((results, chunk_error))
    elif chunk_error is None:
        chunk.future.set_result(results[0])
    else:
        chunk.future.set_exception(chunk_error)


def _set_error(chunk: CallChunk, error: BaseException) -> None:
    if chunk.begin():
        with contextlib.suppress(InvalidStateError):
            chunk.future.set_exception(error)
