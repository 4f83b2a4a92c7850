"""Keys and values by which the ranks of a collective find each other, as torch's stores hold them.

    rank 0 ──set("default_pg/0", address)──▶ ┌─ rendezvous ────────────────┐
    rank 1 ──get("default_pg/0")───────────▶ │ generation 2: key → bytes   │   waits until it is set,
                                             └─────────────────────────────┘   or the generation has ended

Each generation has keys of its own: what an earlier one has left there is not seen, and is dropped when it
has ended. A wait holds no thread, and one whose caller has died is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from launchpad.courier.promise import Promise
from launchpad.courier.server.decorators import idempotent
from launchpad.services.waiting import WaitingCalls

T = TypeVar("T")


Values = dict[str, bytes]
"""What one generation has set."""


class StoreServer:
    """The served side: what serves collectives inherits its methods. All of them are safe from any thread.

    Example:
        class Rendezvous(StoreServer):
          def close_generation(self, generation):
            self._end_store(generation)
    """

    def __init__(self) -> None:
        self._store_calls = WaitingCalls("store")
        # Each by itself: it waits for keys of its own.
        self._store_gets = self._store_calls.line(is_ordered=False)
        self._generations: dict[int, Values] = {}
        self._last_ended = 0

    def store_set(self, generation: int, key: str, value: bytes) -> None:
        """Sets a key, whether it was there or not."""
        self._change(generation, lambda values: values.__setitem__(key, value))

    def store_append(self, generation: int, key: str, value: bytes) -> None:
        """Adds bytes to the end of a key's value."""
        self._change(generation, lambda v: v.__setitem__(key, v.get(key, b"") + value))

    def store_add(self, generation: int, key: str, number: int) -> int:
        """Adds to a counter that begins with 0; what it is then. Its value is decimal digits, as torch's."""

        def add(values: Values) -> int:
            total = int(values.get(key, b"0")) + number
            values[key] = str(total).encode()
            return total

        return self._change(generation, add)

    def store_compare_set(
        self, generation: int, key: str, expected: bytes, desired: bytes
    ) -> bytes:
        """Sets a key if it is as expected, or is not there and nothing is expected; what it is then."""

        def compare_set(values: Values) -> bytes:
            if values.get(key, b"") == expected:
                values[key] = desired
            return values.get(key, expected)

        return self._change(generation, compare_set)

    def store_delete(self, generation: int, key: str) -> bool:
        """Deletes a key; whether it was there."""
        return self._change(generation, lambda values: values.pop(key, None) is not None)

    def store_keys(self, generation: int) -> list[str]:
        """All keys that are set."""
        return self._change(generation, sorted)

    @idempotent
    def store_get(
        self, generation: int, keys: Sequence[str], timeout_s: float
    ) -> list[bytes] | Promise:
        """Return the values of these keys, once all are set.

        Raises:
            TimeoutError: one is not set in time; it says which.
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
            missing = next(key for key in keys if key not in values)
            raise TimeoutError(
                f"{missing!r} was not set within {timeout_s:g} s: not all ranks have come here"
            )

        with self._store_calls.changing():
            return self._store_calls.answer(self._store_gets, is_ready, get, late, timeout_s)

    def _end_store(self, generation: int) -> None:
        """Drops the keys of this generation and those before it. What waits for one raises LookupError."""
        with self._store_calls.changing():
            self._last_ended = max(self._last_ended, generation)
            ended = [number for number in self._generations if number <= self._last_ended]
            for number in ended:
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
