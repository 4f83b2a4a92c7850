"""StoreServer: keys and values with which the ranks of a collective find each other, as in torch's stores.

    rank 0 ──set("default_pg/0", address)──▶ ┌─ rendezvous ────────────────┐
    rank 1 ──get("default_pg/0")───────────▶ │ generation 2: key → bytes   │   waits until it is set,
                                             └─────────────────────────────┘   or the generation has ended

Each generation has separate keys. A generation never sees the keys of an earlier one, and its own keys are
dropped when it ends. A wait does not occupy a thread, and is dropped when its caller dies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from launchpad.courier.promise import Promise
from launchpad.courier.server.decorators import idempotent
from launchpad.services.waiting import WaitingCalls

T = TypeVar("T")


Values = dict[str, bytes]
"""The keys and values that one generation has set."""


class StoreServer:
    """The server side of the store, a base class for the rendezvous. Safe from any thread.

    Example:
        class Rendezvous(StoreServer):
          def close_generation(self, generation):
            self._end_store(generation)
    """

    def __init__(self) -> None:
        self._store_calls = WaitingCalls("store")
        # The line is not ordered, because each call waits for keys of its own.
        self._store_gets = self._store_calls.line(is_ordered=False)
        self._generations: dict[int, Values] = {}
        self._last_ended = 0

    def store_set(self, generation: int, key: str, value: bytes) -> None:
        """Set a key, whether it exists or not."""
        self._change(generation, lambda values: values.__setitem__(key, value))

    def store_append(self, generation: int, key: str, value: bytes) -> None:
        """Append bytes to the value of a key."""
        self._change(generation, lambda v: v.__setitem__(key, v.get(key, b"") + value))

    def store_add(self, generation: int, key: str, number: int) -> int:
        """Add to a counter that starts at 0, and return the sum. As in torch, it is in decimal digits."""

        def add(values: Values) -> int:
            total = int(values.get(key, b"0")) + number
            values[key] = str(total).encode()
            return total

        return self._change(generation, add)

    def store_compare_set(
        self, generation: int, key: str, expected: bytes, desired: bytes
    ) -> bytes:
        """Set a key if its value is as expected, or if it doesn't exist and b"" is expected.

        Return the key's value afterwards. If the key doesn't exist, return `expected`.
        """

        def compare_set(values: Values) -> bytes:
            if values.get(key, b"") == expected:
                values[key] = desired
            return values.get(key, expected)

        return self._change(generation, compare_set)

    def store_delete(self, generation: int, key: str) -> bool:
        """Delete a key. True if it existed."""
        return self._change(generation, lambda values: values.pop(key, None) is not None)

    def store_keys(self, generation: int) -> list[str]:
        """Return all keys that are set."""
        return self._change(generation, sorted)

    @idempotent
    def store_get(
        self, generation: int, keys: Sequence[str], timeout_s: float
    ) -> list[bytes] | Promise:
        """Return the values of these keys, once all of them are set.

        Raises:
            TimeoutError: a key was not set in time. The message says which one.
            LookupError: the generation has ended.
        """

        def is_ready() -> bool:
            has_ended = generation <= self._last_ended
            return has_ended or self._values(generation).keys() >= set(keys)

        def get() -> list[bytes]:
            values = self._values(generation)
            return [values[key] for key in keys]

        def late() -> list[bytes]:
            values = self._values(generation)
            missing_key = next(key for key in keys if key not in values)
            raise TimeoutError(
                f"{missing_key!r} was not set within {timeout_s:g} s: not all ranks have come here"
            )

        with self._store_calls.changing():
            return self._store_calls.answer(self._store_gets, is_ready, get, late, timeout_s)

    def _end_store(self, generation: int) -> None:
        """Drop the keys of this generation and of all earlier ones. Waits for them raise LookupError."""
        with self._store_calls.changing():
            self._last_ended = max(self._last_ended, generation)
            numbers = [number for number in self._generations if number <= self._last_ended]
            for number in numbers:
                del self._generations[number]

    def _change(self, generation: int, change: Callable[[Values], T]) -> T:
        with self._store_calls.changing():
            return change(self._values(generation))

    def _values(self, generation: int) -> Values:
        if generation <= self._last_ended:
            raise LookupError(
                f"generation {generation} has ended, and its keys with it: one of its ranks has failed"
            )
        return self._generations.setdefault(generation, {})
