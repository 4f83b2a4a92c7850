"""The one event loop of a server, on which its coroutine methods run."""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from launchpad.courier.promise import Promise

if TYPE_CHECKING:
    import asyncio


class EventLoop:
    """A thread with an asyncio loop; both run from the first coroutine until `close`.

    No coroutine ends them before: SystemExit and KeyboardInterrupt are the failure of one call.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> Promise:
        """Runs a coroutine in the caller's context. Cancelling the outcome cancels the task."""
        import asyncio

        with self._lock:
            if (loop := self._loop) is None:
                loop = self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._main, args=(loop,), name=f"{self._name}-loop", daemon=True
                )
                self._thread.start()
        promise = _TaskPromise(loop, coroutine, self._tasks)
        loop.call_soon_threadsafe(promise.start, context=contextvars.copy_context())
        return promise

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
        """For a forked child, in which the thread does not run."""
        self._loop = self._thread = None

    def _main(self, loop: asyncio.AbstractEventLoop) -> None:
        import asyncio

        def run(run_loop: Callable[[], object]) -> None:
            """A task that raises one of these has it as its outcome; asyncio leaves the loop as well."""
            while True:
                try:
                    run_loop()
                    return
                except (SystemExit, KeyboardInterrupt):
                    pass

        asyncio.set_event_loop(loop)
        try:
            run(loop.run_forever)
            tasks = tuple(self._tasks)
            for task in tasks:
                task.cancel()
            if tasks:
                run(lambda: loop.run_until_complete(asyncio.wait(tasks, timeout=1.0)))
            run(lambda: loop.run_until_complete(loop.shutdown_asyncgens()))
        finally:
            loop.close()


class _TaskPromise(Promise):
    """The outcome of a coroutine on the loop, which can be cancelled while it runs."""

    __slots__ = ("_coroutine", "_loop", "_task", "_tasks")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, Any],
        tasks: set[asyncio.Task[Any]],
    ) -> None:
        super().__init__()
        self._loop = loop
        self._coroutine = coroutine
        self._tasks = tasks
        self._task: asyncio.Task[Any] | None = None

    def start(self) -> None:
        """On the loop: makes the task."""
        self.begin()
        self._task = self._loop.create_task(self._coroutine)
        self._tasks.add(self._task)
        self._task.add_done_callback(self._finish)

    def cancel(self) -> bool:
        """Requests that the task ends; what it ends with is the outcome."""
        if not self.is_done:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the task with it
                self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())
        return False

    def _finish(self, task: asyncio.Task[Any]) -> None:
        from concurrent.futures import CancelledError

        self._tasks.discard(task)
        if task.cancelled():
            self.set_exception(CancelledError("the call was cancelled while it ran"))
        elif (error := task.exception()) is not None:
            self.set_exception(error)
        else:
            self.set_result(task.result())
