"""PoolWorker: the server of a PoolNode. It runs the calls that pools send.

    run_frame ──▶ waiting frames ──▶ a slot, which is a thread: runs the calls of the frame ──▶ its answer
                       └── take_back: another worker is free

An answer is one of
    (DONE, outcomes)              for each chunk: its results, the error that ended it, and its duration
    (NOT_BEGUN, ())               the frame was taken back: nothing of it has run
    (STOPPING, ())                the worker stops: nothing of the frame has run
    (UNKNOWN_FUNCTIONS, digests)  the pool must send these definitions, too; nothing of the frame has run
    (STOPPED, ())                 the worker stops while the frame runs
"""

from __future__ import annotations

import contextlib
import inspect
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launchpad.courier.codec import pickling
from launchpad.courier.interruptions import Condition
from launchpad.courier.promise import Promise
from launchpad.courier.server.decorators import serves
from launchpad.errors import Stopped
from launchpad.pools.function import DefinedFunction, DefinedFunctions, Definition
from launchpad.pools.packing import Call, pack_result, unpack_call
from launchpad.runtime import context
from launchpad.runtime.interrupt import raise_in

DONE = "done"
NOT_BEGUN = "not begun"
UNKNOWN_FUNCTIONS = "unknown functions"
STOPPING = "stopping"
STOPPED = "stopped"

Outcome = tuple[list[Any], bytes | None, float]
"""Three values for a chunk: the packed results of its calls up to the first failure, the encoded error of the
call that failed, and the duration in seconds.
"""


@serves(only=["hello", "run_frame", "take_back"])
class PoolWorker:
    """A server that runs functions of pools in `slots` threads.

    Args:
        slots: The number of calls that run at the same time.
        initializer: A function to call once in each worker, before it serves.
        initargs: The arguments of the initializer.
    """

    def __init__(
        self,
        slots: int = 1,
        initializer: Callable[..., object] | None = None,
        initargs: Sequence[Any] = (),
    ) -> None:
        if initializer is not None:
            initializer(*initargs)
        self._slots = slots
        self._functions = DefinedFunctions()
        # A frame must not both begin and be taken back. So whichever thread removes it from `_waiting` is the
        # only one that answers it.
        self._changed = Condition()
        self._waiting: OrderedDict[str, _WaitingFrame] = OrderedDict()
        self._running: dict[threading.Thread, Promise] = {}
        self._is_stopping = False
        context.inherit()
        for number in range(slots):
            name = f"pool-slot-{number}"
            threading.Thread(target=self._run_frames, name=name, daemon=True).start()

    def hello(self) -> int:
        """Return the number of slots; 0 if the worker is stopping."""
        return 0 if self._is_stopping else self._slots

    def run_frame(
        self,
        frame: str,
        definitions: Mapping[bytes, Definition],
        chunks: Sequence[tuple[bytes, Sequence[Call]]],
    ) -> Any:
        """Run chunks of calls, one after the other. Return a promise, because the frame may have to wait.

        Args:
            frame: The name by which `take_back` finds the frame.
            definitions: Functions that this worker may not know yet, by digest.
            chunks: For each chunk, the digest of its function and its calls.
        """
        with self._changed:
            self._functions.add(definitions)
            functions = [self._functions.find(digest) for digest, _ in chunks]
            if self._is_stopping:
                return STOPPING, ()
            pairs = list(zip(functions, chunks, strict=True))
            unknown = [digest for function, (digest, _) in pairs if function is None]
            if unknown:
                return UNKNOWN_FUNCTIONS, unknown
            promise = Promise()
            calls_of_functions = [(function, calls) for function, (_, calls) in pairs if function]
            self._waiting[frame] = _WaitingFrame(calls_of_functions, promise)
            self._changed.notify()
        return promise

    def take_back(self, frame: str) -> bool:
        """Drop a frame if it has not begun, and answer it with NOT_BEGUN. False if it has begun."""
        with self._changed:
            waiting_frame = self._waiting.pop(frame, None)
        return waiting_frame is not None and waiting_frame.promise.set_result((NOT_BEGUN, ()))

    def _run_frames(self) -> None:
        me = threading.current_thread()
        # `end` may raise Stopped in this thread just after the frame is done.
        with contextlib.suppress(Stopped):
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._waiting or self._is_stopping)
                    if self._is_stopping:
                        return
                    _, frame = self._waiting.popitem(last=False)
                    if not frame.promise.begin():
                        # The pool that sent the frame has gone.
                        del frame
                        continue
                    self._running[me] = frame.promise
                outcomes = [_run_chunk(*chunk) for chunk in frame.chunks]
                with self._changed:
                    del self._running[me]
                frame.promise.set_result((DONE, outcomes))
                # Don't keep the results in memory while the slot waits.
                del frame, outcomes

    def end(self) -> None:
        """Answer all frames, interrupt the running ones, and end the threads. Clients cannot call this."""
        with self._changed:
            self._is_stopping = True
            waiting_frames = list(self._waiting.values())
            running_slots = dict(self._running)
            self._waiting.clear()
            self._changed.notify_all()
        for frame in waiting_frames:
            frame.promise.set_result((STOPPING, ()))
        for slot, promise in running_slots.items():
            promise.set_result((STOPPED, ()))
            raise_in(slot)


@dataclass
class _WaitingFrame:
    """A frame that waits for a slot."""

    chunks: list[tuple[DefinedFunction, Sequence[Call]]]
    promise: Promise


def _run_chunk(function: DefinedFunction, calls: Sequence[Call]) -> Outcome:
    """Run the calls of a chunk until one fails."""
    results: list[Any] = []
    error: bytes | None = None
    began = time.perf_counter()
    try:
        for call in calls:
            args, kwargs = unpack_call(call)
            result = function.load()(*args, **kwargs)
            if inspect.iscoroutine(result):
                import asyncio

                result = asyncio.run(result)
            try:
                results.append(pack_result(result))
            except Exception as unpicklable:
                error = pickling.encode_unpicklable(result, unpicklable)
                break
    except BaseException as raised:
        # Catch SystemExit, too, because a call must not end the worker.
        error = pickling.encode_error(raised)
    return results, error, time.perf_counter() - began
