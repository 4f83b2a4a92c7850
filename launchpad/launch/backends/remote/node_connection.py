"""The protocol between the launcher and a node: calls of worker hosts one way, and their answers the other.

    launcher ── HostCall(number, worker, method, …) ─▶ node ── calls ──▶ worker hosts
             ◀── Answer(number, result, error) ────────────────────────┘

A `NodeConnection` is the launcher's end. The node's end is `node_host.NodeHost`. Something else carries the
parts of which the calls and answers consist (`parts.py`): courier for nodes that join the launcher, the pipes
of an ssh connection with `ssh`.

A large buffer is sent once to each node, before the first call that refers to it.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from launchpad.errors import LaunchError
from launchpad.launch.backends.remote.parts import Part, PartJoiner, SendQueue
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


RENEW = "renew"
"""The call that renews a node's lease. It and its answer overtake all others."""


@dataclass(frozen=True)
class HostCall:
    """A call of a method of a worker's host, as data. Without a worker, it is one of the node's host.

    Attributes:
        has_answer: False if nothing waits for the answer, so that the node doesn't send it.
    """

    number: int
    worker: str
    method: str
    arguments: Sequence[Any] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    has_answer: bool = True


@dataclass(frozen=True)
class NewBuffer:
    """A large buffer, and the number by which later calls refer to it."""

    number: int
    buffer: LargeBuffer


@dataclass(frozen=True)
class SentBuffer:
    """A stand-in for a large buffer among the arguments of a call: the number by which the node knows it."""

    number: int


@dataclass(frozen=True)
class Answer:
    """The answer of the call with this number. If the call could not be executed, `error` says why."""

    number: int
    result: Any = None
    error: str | None = None


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
        self._queue = SendQueue(self._on_unsendable)
        self._joiner = PartJoiner()
        # Held from the check that the node is there until its call is queued. Without the lock, a call that
        # comes just as the node goes could miss `on_gone`, and wait forever.
        self._lock = threading.Lock()
        self._answers: dict[int, Future[Any]] = {}
        self._numbers = itertools.count()
        self._buffers: dict[LargeBuffer, int] = {}
        self._gone: NodeGone | None = None

    def call(self, worker: str, method: str, *arguments: Any, **options: Any) -> Future[Any]:
        """Call a method of a worker's host. The future raises NodeGone if the node is gone."""
        return self._call(worker, method, arguments, options)

    def post(self, worker: str, method: str, *arguments: Any, **options: Any) -> None:
        """Call a method, and have the node send no answer.

        Answers of many calls would be in the way of reports: each takes a round trip if the node has joined.
        """
        with self._lock:
            if self._gone is None:
                call = self._call_of(worker, method, arguments, options, has_answer=False)
                self._queue.put(call)

    def renew(self) -> Future[Any]:
        """Renew the node's lease. This overtakes all that waits to be sent."""
        return self._call("", RENEW, is_urgent=True)

    def _call(
        self,
        worker: str,
        method: str,
        arguments: Sequence[Any] = (),
        options: Mapping[str, Any] | None = None,
        *,
        is_urgent: bool = False,
    ) -> Future[Any]:
        future = Future[Any]()
        with self._lock:
            if self._gone is None:
                call = self._call_of(worker, method, arguments, options or {})
                self._answers[call.number] = future
                self._queue.put(call, is_urgent=is_urgent)
                return future
        future.set_exception(self._gone)
        return future

    def _call_of(
        self,
        worker: str,
        method: str,
        arguments: Sequence[Any],
        options: Mapping[str, Any],
        *,
        has_answer: bool = True,
    ) -> HostCall:
        """Return a call with a new number. Queue it with the lock still held."""
        once = [self._once(argument) for argument in arguments]
        return HostCall(next(self._numbers), worker, method, once, options, has_answer)

    def end(self) -> None:
        """Have the node's process end its workers, and then itself."""
        self._queue.end()

    def parts(self) -> AsyncIterator[Part]:
        """Return what to send to the node, until it is asked to end. Iterating may raise LaunchError."""
        return self._queue.parts()

    def on_part(self, part: Part) -> None:
        """Take a part of an answer. The last part resolves the future of the call."""
        answer = self._joiner.add(part)
        if answer is not None:
            self._on_answer(answer)

    def _on_answer(self, answer: Answer) -> None:
        with self._lock:
            future = self._answers.pop(answer.number, None)
        if future is None:
            return
        if answer.error is None:
            future.set_result(answer.result)
        else:
            future.set_exception(LaunchError(answer.error))

    def _on_unsendable(self, message: Any, error: Exception) -> None:
        """Fail a call that can't be pickled. Without a buffer, the node could not execute later calls.

        Raises:
            LaunchError: a buffer can't be read. The connection is of no more use.
        """
        why = f"{type(error).__name__}: {error}"
        if not isinstance(message, HostCall):
            raise LaunchError(f"a large array cannot be sent to it: {why}") from error
        self._on_answer(
            Answer(message.number, error=f"its host cannot be sent {message.method!r}: {why}")
        )

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
            self._queue.put(NewBuffer(number, argument))
        return SentBuffer(number)
