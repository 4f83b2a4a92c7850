"""The one event loop of a server, on which its coroutine methods run."""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from launchpad.courier.servers.later import Later

if TYPE_CHECKING:
    import asyncio


class EventLoop:
    """A thread with a loop; both are there from the first coroutine until `close`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> Later:
        """Runs a coroutine in the caller's context. Cancelling the outcome cancels the task."""
        loop = self._get_loop()
        run = _Run(loop, coroutine, self._tasks)
        loop.call_soon_threadsafe(run.start, context=contextvars.copy_context())
        return run.later

    def close(self) -> None:
        """Cancels what runs, and ends the thread."""
        with self._lock:
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join()

    def drop_inherited(self) -> None:
        """For a forked child: the thread is the parent's."""
        self._loop = self._thread = None

    def _get_loop(self) -> asyncio.AbstractEventLoop:
        import asyncio

        with self._lock:
            if self._loop is None:
                loop = self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._main, args=(loop,), name=f"{self._name}-loop", daemon=True
                )
                self._thread.start()
            return self._loop

    def _main(self, loop: asyncio.AbstractEventLoop) -> None:
        import asyncio

        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            self._cancel_all(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    def _cancel_all(self, loop: asyncio.AbstractEventLoop) -> None:
        import asyncio

        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks, timeout=1.0))


class _Run:
    """One coroutine on the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, Any],
        tasks: set[asyncio.Task[Any]],
    ) -> None:
        self.later = _CancellableLater(loop, self)
        self._loop = loop
        self._coroutine = coroutine
        self._tasks = tasks
        self._task: asyncio.Task[Any] | None = None

    def start(self) -> None:
        self.later.begin()
        self._task = self._loop.create_task(self._coroutine)
        self._tasks.add(self._task)
        self._task.add_done_callback(self._finish)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _finish(self, task: asyncio.Task[Any]) -> None:
        from concurrent.futures import CancelledError

        self._tasks.discard(task)
        if task.cancelled():
            self.later.set_exception(CancelledError("the call was cancelled while it ran"))
        elif (error := task.exception()) is not None:
            self.later.set_exception(error)
        else:
            self.later.set_result(task.result())


class _CancellableLater(Later):
    """The outcome of a coroutine, which can be cancelled while it runs."""

    __slots__ = ("_loop", "_run")

    def __init__(self, loop: asyncio.AbstractEventLoop, run: _Run) -> None:
        super().__init__()
        self._loop, self._run = loop, run

    def cancel(self) -> bool:
        """Asks the task to end; it has the last word."""
        if not self.is_done:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the task with it
                self._loop.call_soon_threadsafe(self._run.cancel)
        return False
