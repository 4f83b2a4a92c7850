"""Arrays by the memory behind them, and those that are there for a moment."""

import weakref
from collections.abc import Iterable

from examples._shared.digits import Array


def elements(arrays: Iterable[Array]) -> int:
    """Return how many elements these keep in memory: a view keeps all that it is a view of."""
    owners = [array if array.base is None else array.base for array in arrays]
    return sum(owner.size for owner in {id(owner): owner for owner in owners}.values())


class Transient:
    """Watches arrays that are to be dropped soon; `most` is what was there at once."""

    def __init__(self) -> None:
        self._watched: list[weakref.ref[Array]] = []
        self.most = 0

    def watch(self, array: Array) -> Array:
        """Count it as long as anything refers to it, or to a view of it."""
        self._watched.append(weakref.ref(array))
        alive = [each for ref in self._watched if (each := ref()) is not None]
        self._watched = [weakref.ref(each) for each in alive]
        self.most = max(self.most, elements(alive))
        return array
