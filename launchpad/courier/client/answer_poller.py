"""A thread that waits for the answers to many calls, each of which has its own connection.

Most answers are read by the thread that waits for them. If the poller woke for each answer too, it would only
take the processor from that thread. So the poller starts to watch a connection when something must be
notified of the answer. Otherwise it starts after a tick, if no thread has read from the connection by then.
"""

from __future__ import annotations

import contextlib
import select
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from launchpad.courier.client.pending_calls import PendingCalls
from launchpad.courier.own_threads import OwnThread
from launchpad.courier.transport.stream_socket import WakeupSocketpair

if TYPE_CHECKING:
    from launchpad.courier.client.shm_connection import ShmClientConnection

_Call = TypeVar("_Call")

_IDLE_S = 3.0
_TICK_S = 0.005


class AnswerPoller(Generic[_Call]):
    """A thread that calls `on_answer(call, connection)` when there is something to read, and ends late calls.

    The thread ends when it has had nothing to do for a while.

    Args:
        on_tick: Starts watching the calls that have waited for a tick. Returns True if there are newer
            calls, so that it must be called again after the next tick.
        may_end: Called before the thread ends. Returns False if there is something to do, after all.
    """

    def __init__(
        self,
        label: str,
        pending: PendingCalls,
        on_answer: Callable[[_Call, ShmClientConnection], None],
        on_tick: Callable[[float], bool],
        may_end: Callable[[], bool],
    ) -> None:
        self._pending = pending
        self._on_answer = on_answer
        self._on_tick = on_tick
        self._may_end = may_end
        self._is_closing = False
        #: True while the thread looks at new calls soon enough by itself, so that nothing has to wake it.
        self.is_ticking = False
        self._watched: dict[int, tuple[_Call, ShmClientConnection]] = {}  # by descriptor
        self._epoll = select.epoll()
        try:
            self._wakeup = WakeupSocketpair()
        except OSError:
            self._epoll.close()
            raise
        self._epoll.register(self._wakeup, select.EPOLLIN)
        name = f"courier-answers-{label}"
        self.thread = OwnThread(target=self._main, name=name)

    # Only a thread that has claimed the call may call `watch` and `unwatch`.

    def watch(self, call: _Call, connection: ShmClientConnection) -> None:
        """Start watching `connection` for an answer to `call`."""
        fd = connection.sock.fileno()
        if fd not in self._watched:
            self._watched[fd] = call, connection
            # The connection or the epoll may be closed.
            with contextlib.suppress(OSError, ValueError):
                self._epoll.register(fd, select.EPOLLIN)

    def unwatch(self, connection: ShmClientConnection) -> None:
        """Stop watching. Call this before reading from the connection, and before closing it."""
        fd = connection.sock.fileno()
        if self._watched.pop(fd, None) is not None:
            with contextlib.suppress(OSError, ValueError):
                self._epoll.unregister(fd)

    def wake(self) -> None:
        """Wake the thread for a new call, or for a call that now has the earliest deadline."""
        self._wakeup.wake()

    def close(self) -> None:
        """End the thread."""
        self._is_closing = True
        self._wakeup.wake()
        if threading.current_thread() is not self.thread:
            self.thread.join()

    def drop_inherited(self) -> None:
        """Close the descriptors in a forked child, in which the thread does not run."""
        self._epoll.close()
        self._wakeup.drop_inherited()

    def _main(self) -> None:
        was_woken = False
        while True:
            # Clear the flag before looking for calls: other threads first add a call and then read the flag.
            self.is_ticking = False
            self.is_ticking = self._on_tick(time.monotonic() - _TICK_S) or was_woken
            was_woken = False
            first = self._pending.deadlines.first()
            remaining_s = _IDLE_S if first is None else max(0.0, first - time.monotonic()) + 0.0005
            timeout_s = min(remaining_s, _TICK_S if self.is_ticking else _IDLE_S)
            events = self._epoll.poll(timeout_s)
            for fd, _ in events:
                if fd == self._wakeup.fileno():
                    self._wakeup.drain()
                    was_woken = True  # so that the next call need not wake this thread
                    continue
                call_and_connection = self._watched.get(fd)
                if call_and_connection is not None:
                    self._on_answer(*call_and_connection)
                    # Don't keep the future and its value alive during the next wait.
                    call_and_connection = None
            self._pending.fail_late()
            is_idle = not events and timeout_s >= _IDLE_S
            if (is_idle or self._is_closing) and self._may_end():
                break
        self._epoll.close()
        self._wakeup.close()
