"""A pump for async iterators: one task on the server's event loop, for as long as the stream is open."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from launchpad.courier.servers.event_loop import EventLoop
from launchpad.courier.streams.outgoing import Outgoing
from launchpad.courier.streams.pump import Link, report


class AsyncPump:
    """Steps an async iterator. As a Pump otherwise, but cancelling does not wait for the next item."""

    needs_thread = False

    def __init__(self, outgoing: Outgoing, link: Link, loop: EventLoop) -> None:
        self._outgoing = outgoing
        self._link = link
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed: asyncio.Event | None = None
        self._is_stuck = False
        self._wants_flush = False
        self.outcome = outgoing.context.run(loop.spawn, self._main())

    def allow(self, items: int, n_bytes: int) -> None:
        self._outgoing.allow(items, n_bytes)
        self._wake()

    def drained(self) -> None:
        self._is_stuck = False
        self._wake()

    def cancel(self) -> None:
        self.outcome.cancel()

    def run(self) -> None:
        """Nothing: the loop does it."""

    async def _main(self) -> None:
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        try:
            while not self._outgoing.has_ended and not self._link.is_closed:
                await self._wait(lambda: self._outgoing.has_room)
                await self._send_item()
            await self._wait(lambda: True)
        except OSError:
            pass  # the consumer is gone
        finally:
            await self._close()

    async def _wait(self, is_ready: Callable[[], bool]) -> None:
        """Until then, and until all that was put has been written."""
        assert self._changed is not None
        while self._is_stuck or not is_ready():
            self._flush()
            self._changed.clear()
            if self._is_stuck or not is_ready():
                await self._changed.wait()

    async def _send_item(self) -> None:
        chunks = await self._outgoing.step_async()
        self._link.put(chunks)
        if len(chunks) > 1 or self._outgoing.has_ended:
            self._flush()
        elif not self._wants_flush:
            self._wants_flush = True
            asyncio.get_running_loop().call_soon(self._flush_quietly)

    def _flush_quietly(self) -> None:
        """As soon as the iterator waits for something: what it has given is not to wait with it."""
        self._wants_flush = False
        with contextlib.suppress(OSError):  # the next write of the task tells
            self._flush()

    def _flush(self) -> None:
        self._is_stuck = True
        if self._link.flush():
            self._is_stuck = False

    async def _close(self) -> None:
        try:
            await self._outgoing.close_async()
        except Exception:
            report()

    def _wake(self) -> None:
        if (loop := self._loop) is not None and (changed := self._changed) is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the task with it
                loop.call_soon_threadsafe(changed.set)
