"""The one event loop of a server, on which its coroutine methods run."""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from launchpad.courier import caller
from launchpad.courier.interruptions import Lock
from launchpad.courier.own_threads import OwnThread
from launchpad.courier.promise import Promise

if TYPE_CHECKING:
    import asyncio


_CANCEL_S = 1.0  # how long to wait for cancelled tasks
_CLOSE_S = 3.0  # how long to wait for the thread to end


class EventLoop:
    """A thread with an asyncio loop. Both run from the first coroutine until `close`.

    No coroutine can end them earlier: if it raises SystemExit or KeyboardInterrupt, only its call fails.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        # This lock is held to make and to drop the loop, so that calls of several threads share one loop.
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._promises: set[_TaskPromise] = set()  # those of tasks that run or are about to run

    def spawn(
        self,
        coroutine: Coroutine[Any, Any, Any],
        *,
        on_return: Callable[[Any], Any] | None = None,
    ) -> Promise:
        """Run a coroutine in the caller's context, and return a promise of its outcome.

        Cancelling the promise cancels the task.

        Args:
            on_return: A function, which is given for calls. It turns the coroutine's result into the value
                of the outcome, on the loop and before any other coroutine runs. If it is given, the coroutine
                finds the outcome in `caller.outcome`.
        """
        import asyncio

        with self._lock:
            loop = self._loop
            if loop is None:
                # The loop is made in an empty context. Otherwise the loop's own callbacks would keep the
                # context of this call alive, and with it the connection.
                loop = self._loop = contextvars.Context().run(asyncio.new_event_loop)
                self._thread = OwnThread(target=self._main, args=(loop,), name=f"{self._name}-loop")
                self._thread.start()
            promise = _TaskPromise(loop, coroutine, on_return)
            self._promises.add(promise)
        promise.then(self._promises.discard)
        context = contextvars.copy_context()
        if on_return is not None:
            # A weak reference avoids a cycle: the promise keeps the task, and the task keeps the context.
            context.run(caller.outcome.set, weakref.ref(promise))
        loop.call_soon_threadsafe(promise.start, context=context)
        return promise

    def end_calls(self) -> None:
        """Cancel the coroutines that `spawn` started, and wait a moment for them to end.

        The loop goes on running other tasks. But if one of the coroutines doesn't end, this closes the loop,
        because the coroutine may block it.
        """
        promises = tuple(self._promises)
        for promise in promises:
            promise.cancel()
        if threading.current_thread() is self._thread:  # a coroutine stops its own server
            return
        deadline = time.monotonic() + _CANCEL_S
        for promise in promises:
            promise.wait(max(0.0, deadline - time.monotonic()))
        if not all(promise.is_done for promise in promises):
            self.close()

    def close(self) -> None:
        """Cancel all tasks, and end the thread."""
        with self._lock:
            loop = self._loop
            thread = self._thread
            self._loop = None
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join(_CLOSE_S)
            if thread.is_alive():  # a coroutine blocks the loop
                self._give_up()

    def drop_inherited(self) -> None:
        """Forget the loop and the thread in a forked child, where that thread does not run."""
        self._loop = None
        self._thread = None

    def _main(self, loop: asyncio.AbstractEventLoop) -> None:
        import asyncio

        def run(run_loop: Callable[[], object]) -> None:
            """Run the loop, and run it again after SystemExit or KeyboardInterrupt.

            If a task raises one of these exceptions, that is the task's outcome, but asyncio also stops the
            loop.
            """
            while True:
                try:
                    run_loop()
                    return
                except (SystemExit, KeyboardInterrupt):
                    pass

        asyncio.set_event_loop(loop)
        try:
            run(loop.run_forever)
            tasks = asyncio.all_tasks(loop)  # including tasks that coroutines made
            for task in tasks:
                task.cancel()
            if tasks:
                run(lambda: loop.run_until_complete(asyncio.wait(tasks, timeout=_CANCEL_S)))
            for task in tasks:
                if not task.done():
                    _never_free(task)
            run(lambda: loop.run_until_complete(loop.shutdown_asyncgens()))
        finally:
            loop.close()
            self._give_up()

    def _give_up(self) -> None:
        """End the calls whose tasks have not ended by now, or never began."""
        for promise in tuple(self._promises):
            promise.give_up()


class _TaskPromise(Promise):
    """The outcome of a coroutine on the loop, which can be cancelled while it runs."""

    __slots__ = ("__weakref__", "_coroutine", "_loop", "_on_return", "_task", "is_cancelled")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, Any],
        on_return: Callable[[Any], Any] | None,
    ) -> None:
        super().__init__()
        self._loop = loop
        self._coroutine = coroutine
        self._on_return = on_return
        self._task: asyncio.Task[Any] | None = None
        self.is_cancelled = False  # True once cancellation was requested

    def start(self) -> None:
        """Make the task. Called on the loop."""
        self.begin()
        coroutine = self._coroutine
        if self._on_return is not None:
            coroutine = _returned(coroutine, self._on_return)
        self._task = self._loop.create_task(coroutine)
        self._task.add_done_callback(self._finish)

    def cancel(self) -> bool:
        """Ask the task to end. The outcome is what the task then returns or raises."""
        self.is_cancelled = True
        if not self.is_done:
            # RuntimeError: the loop is closed, and the task has ended with it.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())
        return False

    def give_up(self) -> None:
        """End with CancelledError, because the loop has ended and the task with it."""
        from concurrent.futures import CancelledError

        if self._task is None:
            self._coroutine.close()
        self.set_exception(CancelledError("its event loop was closed while it ran"))

    def _finish(self, task: asyncio.Task[Any]) -> None:
        from concurrent.futures import CancelledError

        # If the task was cancelled at once, the coroutine never began, and Python would warn of that.
        self._coroutine.close()
        if task.cancelled():
            self.set_exception(CancelledError("the call was cancelled while it ran"))
            return
        error = task.exception()
        if error is not None:
            self.set_exception(error)
        else:
            self.set_result(task.result())


def _never_free(task: asyncio.Task[Any]) -> None:
    """Make sure that a task that ignored its cancellation is never freed.

    Otherwise Python would close the task's coroutine in the thread that happens to collect it. If the
    coroutine catches all exceptions in a loop, it would also catch the one that closes it. It would then fail
    at each `await`, and keep the thread busy forever.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(task))


async def _returned(coroutine: Coroutine[Any, Any, Any], on_return: Callable[[Any], Any]) -> Any:
    return on_return(await coroutine)
