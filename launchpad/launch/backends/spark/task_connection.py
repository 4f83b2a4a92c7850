"""The protocol between the launcher and a task: commands in one stream, and one call for each answer.

    launcher ── Command, as an item of the stream that `join` is ──▶ task
             ◀── answer(job, task, number, result, error) ───────────

The task connects to the launcher, never the other way round, because executors reach their driver in every
cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from launchpad.errors import LaunchError
from launchpad.launch.backends.remote.worker_host import HostReady
from launchpad.launch.large_buffers import LargeBuffer


@dataclass(frozen=True)
class TaskReady:
    """A task's own place, and the executor whose process it is."""

    where: HostReady
    executor: str


@dataclass(frozen=True)
class Command:
    """A call of a method of a worker's host."""

    number: int
    worker: str
    method: str
    arguments: Sequence[Any]
    options: Mapping[str, Any]


@dataclass(frozen=True)
class SentBuffer:
    """A stand-in for a large buffer among the arguments of a command.

    Attributes:
        number: The number by which the task knows the buffer.
        buffer: The buffer itself in the first command that refers to it; None in all others.
    """

    number: int
    buffer: LargeBuffer | None


class TaskGone(Exception):
    """The task is gone, and with it all workers that it was the host of."""


class TaskConnection:
    """The launcher's end of a connection. Make it in the event loop of the server; use it from any thread."""

    def __init__(self, ready: TaskReady) -> None:
        self.ready = ready
        self._loop = asyncio.get_running_loop()
        self._queue = asyncio.Queue[Command | None]()
        # Held from the check that the task is there until its command is queued. Without the lock, a call
        # that comes just as the task goes could miss `on_gone`, and wait forever.
        self._lock = threading.Lock()
        self._answers: dict[int, Future[Any]] = {}
        self._numbers = itertools.count()
        self._buffers: dict[LargeBuffer, int] = {}
        self._is_gone = False

    def call(self, worker: str, method: str, *arguments: Any, **options: Any) -> Future[Any]:
        """Call a method of a worker's host. The future raises TaskGone if the task is gone."""
        future = Future[Any]()
        with self._lock:
            number = next(self._numbers)
            if not self._is_gone:
                self._answers[number] = future
                once = [self._once(argument) for argument in arguments]
                self._put(Command(number, worker, method, once, options))
                return future
        future.set_exception(TaskGone())
        return future

    def end_task(self) -> None:
        """Have the task end its workers, and then itself."""
        self._put(None)

    async def commands(self) -> AsyncIterator[Command]:
        """Yield the commands for the task, until it is asked to end."""
        while True:
            command = await self._queue.get()
            if command is None:
                return
            yield command

    def on_answer(self, number: int, result: Any, error: str | None) -> None:
        """Resolve the future of a command. If the task could not execute the command, `error` says why."""
        with self._lock:
            future = self._answers.pop(number, None)
        if future is None:
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(LaunchError(error))

    def on_gone(self) -> None:
        """Fail all open calls, because the task's connection has ended."""
        with self._lock:
            self._is_gone = True
            answers = self._answers
            self._answers = {}
        for future in answers.values():
            future.set_exception(TaskGone())

    def _once(self, argument: Any) -> Any:
        """Return what to send for an argument: for a large buffer that the task already has, only its number.

        Call it with the lock held, so that the command with the buffer itself is sent first.
        """
        if not isinstance(argument, LargeBuffer):
            return argument
        number = self._buffers.get(argument)
        if number is not None:
            return SentBuffer(number, None)
        number = len(self._buffers)
        self._buffers[argument] = number
        return SentBuffer(number, argument)

    def _put(self, command: Command | None) -> None:
        with contextlib.suppress(RuntimeError):  # the server has stopped, and its loop is closed
            self._loop.call_soon_threadsafe(self._queue.put_nowait, command)
