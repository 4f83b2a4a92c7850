"""Where a client's server is: at one address for good, or wherever a function says when it is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_MAY_MOVE = frozenset({"unix", "tcp", "tcp+plaintext"})


class Whereabouts:
    """A fixed address, or one to be asked for. Safe from any thread.

    Args:
        given: the address, or a callable that returns it; "" while nobody knows yet.
    """

    def __init__(self, given: str | Callable[[], str]) -> None:
        self._ask = None if isinstance(given, str) else given
        if self._ask is not None and not callable(given):
            raise TypeError(
                f"a client's address is a str, or a callable that returns one, not {given!r}"
            )
        #: What was said last.
        self.last = given if isinstance(given, str) else ""

    @property
    def is_asked(self) -> bool:
        """The server may move."""
        return self._ask is not None

    def find(self) -> str:
        """Where the server is now.

        Raises what the callable raises, and ValueError for an address to which no client follows.
        """
        if self._ask is None:
            return self.last
        address = self._ask()
        if address != self.last:
            self._check(address)
            self.last = address
        return address

    def _check(self, address: Any) -> None:
        if not isinstance(address, str):
            raise TypeError(
                f"{self._ask!r} was asked where a server is, and returned {address!r}; expected an "
                'address, or "" while nobody knows'
            )
        if address and address.partition(":")[0] not in _MAY_MOVE:
            raise ValueError(
                f"{self._ask!r} says that the server is at {address!r}. A server that moves has to be "
                "at unix: or tcp: addresses; for another one give the client the address itself"
            )
