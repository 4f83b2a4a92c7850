"""The threads that send the items of streams in arguments, and a runner for async iterators."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

from launchpad.courier.client.shared_connection import SharedConnection
from launchpad.courier.interruptions import in_another_thread
from launchpad.courier.own_threads import OwnThread
from launchpad.courier.periodic_checks import PeriodicChecks
from launchpad.courier.streams.sender import StreamSender
from launchpad.courier.streams.stepping import (
    STALL_S,
    UNWATCH_S,
    LoopFlush,
    StallClock,
    show_close_error,
)

if TYPE_CHECKING:
    import asyncio

# A closed loop never runs the coroutines that it was given last. So a wait for a coroutine checks at this
# interval if the loop is closed.
_POLL_S = 0.1
_stall_checks = PeriodicChecks("courier-stalled-streams", STALL_S)


class ArgumentSender:
    """A sender for an argument that is an iterator. It sends as many items as the method gives credit for.

    From the first credit on, the sender has a thread of its own, because the iterator may wait for anything,
    even for something that the caller does with the call's result.

    Args:
        connection: The connection of the call.
        runner: Steps the iterator if it is async.
        late: Makes the error of a wait that has passed its deadline.
        name: The name of the thread.
    """

    def __init__(
        self,
        connection: SharedConnection,
        outgoing: StreamSender,
        runner: CoroutineRunner,
        late: Callable[[], Exception],
        name: str,
    ) -> None:
        self._connection = connection
        self._outgoing = outgoing
        self._runner = runner
        self._late = late
        self._pull_task: asyncio.Task[Any] | None = None  # set while an async iterator is stepped
        outgoing.items.put = connection.queue.put_chunks
        self._n_pulls = 0
        self._stall_clock = StallClock()
        self._thread = OwnThread(target=self._main, name=name)
        self._has_started = False
        self.is_sending = False  # True while the thread may use the connection

    def allow(self, items: int, n_bytes: int) -> None:
        """Note that the method accepts this many more items and bytes."""
        self._outgoing.items.allow(items, n_bytes)
        self.start()

    def cancel(self) -> None:
        """Stop sending, because the method accepts no more items."""
        self._interrupt()
        self.start()

    def end(self) -> None:
        """Close the iterator at the end of the call. If it was never stepped, close it in this thread."""
        self._interrupt()
        if not self._has_started:
            self._has_started = True
            self._close()

    def start(self) -> None:
        """Start the thread. A second call does nothing."""
        if not self._has_started:
            self._has_started = True
            self.is_sending = True
            in_another_thread(self._thread.start)

    def _main(self) -> None:
        try:
            self._outgoing.context.run(self._send_items)
        except OSError:
            pass  # the thread that reads also finds that the connection ended, and reports it
        finally:
            self._close()
            self.is_sending = False
            if self._connection.is_over:
                self._connection.close()

    def _send_items(self) -> None:
        outgoing = self._outgoing
        items = outgoing.items
        connection = self._connection
        while not items.has_ended:
            # With credit, there is nothing to wait for except the connection's lock.
            if not items.has_credit:
                connection.wait(
                    lambda: connection.is_over or outgoing.is_cancelled or items.has_credit,
                    None,
                    self._late,
                    lambda: None,
                )
            if connection.is_over or outgoing.is_cancelled:
                return
            self._n_pulls += 1
            if outgoing.is_async:
                try:
                    self._runner.run(self._pull_async())
                except OSError:
                    raise
                except BaseException as error:  # the step was cancelled, or its loop is closed
                    outgoing.fail(error)
            else:
                outgoing.pull(self._hold)
            items.put_waiting()
            while not connection.queue.flush_all():  # a closed queue is empty, so this returns True
                connection.queue.wait_until_writable(1.0)

    async def _pull_async(self) -> None:
        """Send items until the thread must wait for credit, or for room in the socket."""
        import asyncio

        outgoing = self._outgoing
        flush = LoopFlush(self._flush)
        self._pull_task = asyncio.current_task()
        try:
            while not outgoing.is_cancelled and outgoing.items.has_credit:
                await outgoing.pull_async(flush.soon)
                if not self._flush():
                    return
        finally:
            self._pull_task = None

    def _interrupt(self) -> None:
        """Take no more items, and cancel the current step of an async iterator. Safe from any thread."""
        self._outgoing.is_cancelled = True
        task = self._pull_task
        if task is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                task.get_loop().call_soon_threadsafe(task.cancel)

    def _flush(self) -> bool:
        """Write the waiting items. Return False if the socket takes no more for now."""
        self._outgoing.items.put_waiting()
        return self._connection.queue.flush_all()

    def _hold(self) -> bool:
        try:
            _stall_checks.add(self._write_if_stalled)
        except RuntimeError:  # out of threads
            return False
        return True

    def _write_if_stalled(self, now: float) -> bool:
        """Write the waiting items if the iterator blocks. Return True to be called again."""
        still_s = self._stall_clock.still_s(self._n_pulls, now)
        if still_s >= STALL_S:
            with contextlib.suppress(OSError):  # the thread that reads reports a connection's end
                return not self._flush() or still_s < UNWATCH_S
        return not self._outgoing.items.has_ended

    def _close(self) -> None:
        try:
            self._outgoing.context.run(self._close_iterator)
        except BaseException:
            show_close_error()

    def _close_iterator(self) -> None:
        if not self._outgoing.is_async or not self._n_pulls:
            self._outgoing.close()
            return
        # A loop that ends cancels its tasks and closes its async generators itself.
        with contextlib.suppress(LoopIsClosed, CancelledError):
            self._runner.run(self._outgoing.close_async())
        self._runner.close()


class CoroutineRunner:
    """A runner of coroutines, one at a time.

    With `loop`, coroutines run there, and any thread but the loop's own may call `run`. Without `loop`, the
    first call of `run` makes a loop in its thread. Only that thread may then call `run` and `close`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self._loop = loop
        self._runner: asyncio.Runner | None = None

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run the coroutine to its end and return its result. Raises LoopIsClosed if the loop is closed."""
        import asyncio
        from concurrent.futures import wait

        loop = self._loop
        if loop is None:
            self._runner = self._runner or asyncio.Runner()
            return self._runner.run(coroutine)
        try:
            if not loop.is_closed():
                future = asyncio.run_coroutine_threadsafe(coroutine, loop)
                while not wait((future,), _POLL_S).done and not loop.is_closed():
                    pass
                if future.done():
                    return future.result()
            raise LoopIsClosed("the event loop of an async iterator was closed before its end")
        finally:
            coroutine.close()  # the coroutine may never have begun

    def close(self) -> None:
        """Close the loop if this runner has made it."""
        if self._runner is not None:
            self._runner.close()


class LoopIsClosed(RuntimeError):
    """The error of a coroutine whose event loop is closed."""
