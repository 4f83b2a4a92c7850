"""Inbox: a store for the values that others send to a server, until its own threads take them by key.

    caller ──put(key, value)──▶ [ key → values ] ──take(key)──▶ the thread that wants this one
                 │ waits for room                     │ waits for a value
                 └── until the stop, its time limit, or the caller's end

If a thread waits for a value's key, `put` hands it the value directly, even if the inbox is full. So a full
inbox never keeps out the one value that a thread needs before it can take others.

Source: the selective receive of Erlang's mailboxes.
"""

from __future__ import annotations

import time
import weakref
from collections import OrderedDict, deque
from typing import Generic, TypeVar

from launchpad.courier import fork
from launchpad.courier.checks import is_whole
from launchpad.courier.deadlines import deadline_after
from launchpad.courier.interruptions import Lock
from launchpad.errors import Stopped
from launchpad.runtime import context
from launchpad.runtime.callers import Caller, try_caller
from launchpad.services.waiting import ThreadWait

K = TypeVar("K")
V = TypeVar("V")

_LOOK_S = 0.1
"""A `put` that waits for room checks this often whether its caller is gone: seconds between two checks."""


class Inbox(Generic[K, V]):
    """A mailbox with keys, for your own servers: methods put values, and `run()` takes the ones it wants.

    Example:
        class Stage:
          def __init__(self):
            self._inbox = lp.Inbox(maxsize=8)
          def forward(self, step, activations):     # called by the stage before
            self._inbox.put(step, activations)
          def run(self):
            for step in range(1000):
              x = self._inbox.take(step, timeout_s=60)

    Thread-safe. Values with the same key come out in the order in which they went in. When the program stops,
    all waits end with `lp.Stopped`, in any thread.

    Args:
        maxsize: The largest number of values, all keys together; 0 for no limit. `put` waits for room.

    Raises:
        ValueError: `maxsize` is less than 0.
    """

    def __init__(self, maxsize: int = 0) -> None:
        if not is_whole(maxsize, at_least=0):
            raise ValueError(f"an inbox holds 0 (any number of) values or more, got {maxsize}")
        self._maxsize = maxsize
        # Held to look for a value and, without a value, to add a waiter to the queue. If a value came between
        # the two, nothing would wake the waiter's thread.
        self._lock = fork.free_in_child(Lock())
        # The values by number, the oldest first.
        self._values: OrderedDict[int, tuple[K, V]] = OrderedDict()
        self._numbers: dict[K, deque[int]] = {}
        self._last = 0
        self._takers: dict[K, deque[ThreadWait[tuple[K, V]]]] = {}
        self._any_takers: deque[ThreadWait[tuple[K, V]]] = deque()
        self._putters: deque[ThreadWait[tuple[K, V]]] = deque()
        self._error: BaseException | None = None
        self._context: context.RunContext | None = None

    def put(self, key: K, value: V, timeout_s: float | None = None) -> bool:
        """Put a value. Wait for room if the inbox is full.

        Returns:
            False if the value was dropped: the caller of the method that puts it died during the wait.

        Raises:
            TimeoutError: there was no room within the timeout.
            Stopped: the program stops.
        """
        with self._lock:
            if self._error is not None:
                raise self._error
            taker = self._taker_of(key)
            if taker is not None:
                taker.succeed((key, value))
                return True
            if not self._maxsize or len(self._values) < self._maxsize:
                self._add(key, value)
                return True
            waiter = ThreadWait[tuple[K, V]]((key, value))
            self._putters.append(waiter)
        caller = try_caller()
        if self._wait(waiter, self._putters, timeout_s, caller):
            return True
        if caller is not None and caller.is_gone:
            return False
        raise TimeoutError(f"no room for {key!r} within {timeout_s} s: the inbox holds {len(self)}")

    def take(self, key: K, timeout_s: float | None = None) -> V:
        """Take the oldest value with this key. Wait until there is one.

        Raises:
            TimeoutError: no value came within the timeout.
            Stopped: the program stops.
        """
        with self._lock:
            numbers = self._numbers.get(key)
            if numbers is not None:
                return self._remove(numbers[0])[1]
            if self._error is not None:
                raise self._error
            waiter = ThreadWait[tuple[K, V]]()
            takers = self._takers.setdefault(key, deque())
            takers.append(waiter)
        try:
            is_over = self._wait(waiter, takers, timeout_s)
        finally:
            # In the meantime, the last waiter may have left, and another thread may have put a new deque
            # here.
            with self._lock:
                if not takers and self._takers.get(key) is takers:
                    del self._takers[key]
        if not is_over:
            raise TimeoutError(f"nothing for {key!r} within {timeout_s} s; there is {self.keys()}")
        assert waiter.value is not None
        return waiter.value[1]

    def take_any(self, timeout_s: float | None = None) -> tuple[K, V]:
        """Take the oldest value of all, and return its key and the value. Wait until there is one.

        Raises:
            TimeoutError: no value came within the timeout.
            Stopped: the program stops.
        """
        with self._lock:
            if self._values:
                return self._remove(next(iter(self._values)))
            if self._error is not None:
                raise self._error
            waiter = ThreadWait[tuple[K, V]]()
            self._any_takers.append(waiter)
        if not self._wait(waiter, self._any_takers, timeout_s):
            raise TimeoutError(f"nothing came within {timeout_s} s")
        assert waiter.value is not None
        return waiter.value

    def keys(self) -> list[K]:
        """Return the keys of the values in the inbox."""
        with self._lock:
            return list(self._numbers)

    def __len__(self) -> int:
        return len(self._values)

    def close(self, error: BaseException) -> None:
        """Close the inbox. All waits raise `error`, as do later `put`s and `take`s that would wait."""
        with self._lock:
            self._error = self._error or error
            waiters = [*self._putters, *self._any_takers]
            waiters += [waiter for takers in self._takers.values() for waiter in takers]
            for waiter in waiters:
                waiter.wake()

    def _wait(
        self,
        waiter: ThreadWait[tuple[K, V]],
        queue: deque[ThreadWait[tuple[K, V]]],
        timeout_s: float | None,
        caller: Caller | None = None,
    ) -> bool:
        """Wait until the waiter is served. Otherwise remove it from its queue, and return False or raise.

        Raise if the inbox was closed; return False if the time is up or the caller is gone.
        """
        self._watch_stop()
        try:
            deadline = deadline_after(timeout_s)
            while not waiter.is_over and self._error is None:
                left_s = None if deadline is None else deadline - time.monotonic()
                if left_s is not None and left_s <= 0:
                    break
                if caller is not None:
                    if caller.is_gone:
                        break
                    left_s = _LOOK_S if left_s is None else min(left_s, _LOOK_S)
                waiter.lock.acquire(timeout=-1 if left_s is None else left_s)
        finally:
            with self._lock:
                if not waiter.is_over:
                    queue.remove(waiter)
        if not waiter.is_over and self._error is not None:
            raise self._error
        return waiter.is_over

    def _add(self, key: K, value: V) -> None:
        self._last += 1
        self._values[self._last] = key, value
        self._numbers.setdefault(key, deque()).append(self._last)

    def _remove(self, number: int) -> tuple[K, V]:
        """Remove the oldest value with its key, and let in the value of the first waiting `put`."""
        key, value = self._values.pop(number)
        numbers = self._numbers[key]
        numbers.popleft()
        if not numbers:
            del self._numbers[key]
        if self._putters:
            putter = self._putters.popleft()
            assert putter.value is not None
            self._add(*putter.value)
            putter.succeed(putter.value)
        return key, value

    def _taker_of(self, key: K) -> ThreadWait[tuple[K, V]] | None:
        takers = self._takers.get(key)
        if takers:
            return takers.popleft()
        return self._any_takers.popleft() if self._any_takers else None

    def _watch_stop(self) -> None:
        """Register a callback, at the first wait, that closes the inbox when the program stops."""
        if self._context is not None:
            return
        me = context.try_current()
        if me is None:
            return
        self._context = me
        inbox_ref = weakref.ref(self)

        def end() -> None:
            inbox = inbox_ref()
            if inbox is not None:
                inbox.close(Stopped())

        me.stop.call_at_stop(end)
