"""The protocol between the launcher and a node: calls of worker hosts one way, and their answers the other.

    launcher ── HostCall(number, worker, method, …) ─▶ node ── calls ──▶ worker hosts
             ◀── number, result, error ────────────────────────────────────────┘

A `NodeConnection` is the launcher's end. The node's end is `node_host.NodeHost`. Something else carries the
calls and answers: a stream of courier's on Spark, the pipes of an ssh connection with `ssh`.

A large buffer is sent once to each node, in parts, before the first call that refers to it. Renewals of the
lease go in between: a node must not lose its workers because it is being sent a lot.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from launchpad.errors import LaunchError
from launchpad.launch.backends.remote.placement import NodeSupply
from launchpad.launch.backends.remote.worker_host import HostReady
from launchpad.launch.large_buffers import LargeBuffer


@dataclass(frozen=True)
class NodeReady:
    """A node's process that has connected.

    Attributes:
        where: The place of the node.
        process: A name for the process, if it has one.
        supply: What the node has for workers, if launchpad places them there.
    """

    where: HostReady
    process: str = ""
    supply: NodeSupply = field(default_factory=NodeSupply)


PART_BYTES = 1 << 20
"""The most bytes of a large buffer that one message carries."""


@dataclass(frozen=True)
class HostCall:
    """A call of a method of a worker's host, as data. Without a worker, it is one of the node's host."""

    number: int
    worker: str
    method: str
    arguments: Sequence[Any] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SentBuffer:
    """A stand-in for a large buffer among the arguments of a call: the number by which the node knows it."""

    number: int


@dataclass(frozen=True)
class BufferPart:
    """Some of the bytes of a large buffer. The parts of a buffer are sent in order.

    Attributes:
        number: The number by which calls refer to the buffer.
        nbytes: The size of the whole buffer.
    """

    number: int
    nbytes: int
    offset: int
    part: bytes


Message = HostCall | BufferPart


class NodeGone(Exception):
    """The node's process is gone or out of reach, and with it all worker hosts in it.

    Attributes:
        is_dead: True if the process has surely ended. Otherwise it may go on until its lease ends.
    """

    def __init__(self, why: str = "", *, is_dead: bool = False) -> None:
        super().__init__(why)
        self.is_dead = is_dead


class NodeConnection:
    """The launcher's end of a connection. Make it in the event loop that sends; use it from any thread."""

    def __init__(self, ready: NodeReady) -> None:
        self.ready = ready
        self._loop = asyncio.get_running_loop()
        # These belong to the event loop.
        self._urgent: deque[HostCall] = deque()
        self._waiting: deque[HostCall | tuple[int, LargeBuffer] | None] = deque()
        self._has_more = asyncio.Event()
        # Held from the check that the node is there until its call is queued. Without the lock, a call that
        # comes just as the node goes could miss `on_gone`, and wait forever.
        self._lock = threading.Lock()
        self._answers: dict[int, Future[Any]] = {}
        self._numbers = itertools.count()
        self._buffers: dict[LargeBuffer, int] = {}
        self._gone: NodeGone | None = None

    def call(self, worker: str, method: str, *arguments: Any, **options: Any) -> Future[Any]:
        """Call a method of a worker's host. The future raises NodeGone if the node is gone."""

        def queue(number: int) -> None:
            once = [self._once(argument) for argument in arguments]
            self._put(HostCall(number, worker, method, once, options))

        return self._begin(queue)

    def renew(self) -> Future[Any]:
        """Renew the node's lease. This overtakes all calls that wait to be sent."""
        return self._begin(
            lambda number: self._in_loop(self._add_urgent, HostCall(number, "", "renew"))
        )

    def _begin(self, queue: Callable[[int], object]) -> Future[Any]:
        """Return the future of a call that `queue` takes under the number it is given."""
        future = Future[Any]()
        with self._lock:
            gone = self._gone
            if gone is None:
                number = next(self._numbers)
                self._answers[number] = future
                queue(number)
                return future
        future.set_exception(gone)
        return future

    def end(self) -> None:
        """Have the node's process end its workers, and then itself."""
        self._put(None)

    async def messages(self) -> AsyncIterator[Message]:
        """Yield what to send to the node, until it is asked to end."""
        while True:
            await self._has_more.wait()
            if self._urgent:
                yield self._urgent.popleft()
            elif not self._waiting:
                self._has_more.clear()
            else:
                first = self._waiting.popleft()
                if first is None:
                    return
                if isinstance(first, HostCall):
                    yield first
                    continue
                number, buffer = first
                # Map the buffer only while it is being sent.
                memory = buffer.memory.cast("B")
                for offset in range(0, buffer.nbytes, PART_BYTES):
                    part = bytes(memory[offset : offset + PART_BYTES])
                    yield BufferPart(number, buffer.nbytes, offset, part)
                    while self._urgent:
                        yield self._urgent.popleft()

    def on_answer(self, number: int, result: Any, error: str | None) -> None:
        """Resolve the future of a call. If the node could not execute the call, `error` says why."""
        with self._lock:
            future = self._answers.pop(number, None)
        if future is None:
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(LaunchError(error))

    def on_gone(self, gone: NodeGone) -> None:
        """Fail all open calls and all later ones, because the node's connection has ended."""
        with self._lock:
            self._gone = gone
            answers = self._answers
            self._answers = {}
        for future in answers.values():
            future.set_exception(gone)

    def _once(self, argument: Any) -> Any:
        """Return what to send for an argument. For a large buffer, queue its bytes unless the node has them.

        Call it with the lock held, so that the bytes are queued before the call that refers to them.
        """
        if not isinstance(argument, LargeBuffer):
            return argument
        number = self._buffers.get(argument)
        if number is None:
            number = len(self._buffers)
            self._buffers[argument] = number
            self._put((number, argument))
        return SentBuffer(number)

    def _put(self, item: HostCall | tuple[int, LargeBuffer] | None) -> None:
        self._in_loop(self._add, item)

    def _in_loop(self, function: Callable[..., object], argument: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, since the launch is over
            self._loop.call_soon_threadsafe(function, argument)

    def _add(self, item: HostCall | tuple[int, LargeBuffer] | None) -> None:
        self._waiting.append(item)
        self._has_more.set()

    def _add_urgent(self, call: HostCall) -> None:
        self._urgent.append(call)
        self._has_more.set()
