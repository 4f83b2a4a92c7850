"""Keys and values by which the ranks of a collective find each other, as torch's stores hold them.

    rank 0 ──set("default_pg/0", address)──▶ ┌─ rendezvous ────────────────┐
    rank 1 ──get("default_pg/0")───────────▶ │ generation 2: key → bytes   │   waits until it is set,
                                             └─────────────────────────────┘   or the generation has ended

Each generation has keys of its own: what an earlier one has left there is not seen, and is dropped when it
has ended. Waits are coroutines, so they hold no threads; one whose caller has died is cancelled by courier.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from launchpad.courier.interruptions import Lock
from launchpad.courier.server.decorators import idempotent

T = TypeVar("T")


@dataclass
class _Keys:
    """What one generation has set, and what wakes those that wait for more."""

    values: dict[str, bytes] = field(default_factory=dict)
    wakers: list[Callable[[], object]] = field(default_factory=list)

    def wake(self) -> None:
        wakers, self.wakers = self.wakers, []
        for wake in wakers:
            wake()


class StoreServer:
    """The served side: what serves collectives inherits its methods. All of them are safe from any thread.

    Example:
        class Rendezvous(StoreServer):
          def close_generation(self, generation):
            self._end_store(generation)
    """

    def __init__(self) -> None:
        self._store_lock = Lock()
        self._generations: dict[int, _Keys] = {}
        self._last_ended = 0

    async def store_set(self, generation: int, key: str, value: bytes) -> None:
        """Sets a key, whether it was there or not."""
        self._change(generation, lambda values: values.__setitem__(key, value))

    async def store_append(self, generation: int, key: str, value: bytes) -> None:
        """Adds bytes to the end of a key's value."""
        self._change(generation, lambda v: v.__setitem__(key, v.get(key, b"") + value))

    async def store_add(self, generation: int, key: str, number: int) -> int:
        """Adds to a counter that begins with 0; what it is then. Its value is decimal digits, as torch's."""

        def add(values: dict[str, bytes]) -> int:
            total = int(values.get(key, b"0")) + number
            values[key] = str(total).encode()
            return total

        return self._change(generation, add)

    async def store_compare_set(
        self, generation: int, key: str, expected: bytes, desired: bytes
    ) -> bytes:
        """Sets a key if it is as expected, or is not there and nothing is expected; what it is then."""

        def compare_set(values: dict[str, bytes]) -> bytes:
            if values.get(key, b"") == expected:
                values[key] = desired
            return values.get(key, expected)

        return self._change(generation, compare_set)

    async def store_delete(self, generation: int, key: str) -> bool:
        """Deletes a key; whether it was there."""
        return self._change(generation, lambda values: values.pop(key, None) is not None)

    async def store_keys(self, generation: int) -> list[str]:
        """All keys that are set."""
        return self._change(generation, sorted)

    @idempotent
    async def store_get(
        self, generation: int, keys: Sequence[str], timeout_s: float
    ) -> list[bytes]:
        """The values of these keys, once all are set.

        Raises:
            TimeoutError: one is not set in time; it says which.
            LookupError: the generation has ended.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            changed = asyncio.Event()
            with self._store_lock:
                of = self._keys(generation)
                missing = [key for key in keys if key not in of.values]
                if not missing:
                    return [of.values[key] for key in keys]
                waker = functools.partial(loop.call_soon_threadsafe, changed.set)
                of.wakers.append(waker)
            try:
                await asyncio.wait_for(changed.wait(), max(0.0, deadline - loop.time()))
            except TimeoutError:
                raise TimeoutError(
                    f"{missing[0]!r} was not set within {timeout_s:g} s: not all ranks have come here"
                ) from None
            finally:
                with self._store_lock, contextlib.suppress(ValueError):  # it has been called
                    of.wakers.remove(waker)

    def _end_store(self, generation: int) -> None:
        """Drops the keys of this generation and those before it. What waits for one raises LookupError."""
        with self._store_lock:
            self._last_ended = max(self._last_ended, generation)
            ended = [number for number in self._generations if number <= self._last_ended]
            for number in ended:
                self._generations.pop(number).wake()

    def _change(self, generation: int, change: Callable[[dict[str, bytes]], T]) -> T:
        with self._store_lock:
            of = self._keys(generation)
            result = change(of.values)
            of.wake()
        return result

    def _keys(self, generation: int) -> _Keys:
        if generation <= self._last_ended:
            raise LookupError(
                f"generation {generation} has ended, and its keys with it: one of its ranks has failed"
            )
        return self._generations.setdefault(generation, _Keys())
