"""Counts of arrays by the memory behind them, and of arrays that exist for a moment."""

import weakref
from collections.abc import Iterable

from examples._shared.data import Array


def elements(arrays: Iterable[Array]) -> int:
    """Return how many elements these arrays keep in memory. A view keeps the whole array behind it."""
    owners = [array if array.base is None else array.base for array in arrays]
    return sum(owner.size for owner in {id(owner): owner for owner in owners}.values())


class Transient:
    """A watch on arrays that should be dropped soon; `most` is the most elements that existed at once."""

    def __init__(self) -> None:
        self._watched: list[weakref.ref[Array]] = []
        self.most = 0

    def watch(self, array: Array) -> Array:
        """Count the array as long as anything refers to it, or to a view of it. Return the array."""
        self._watched.append(weakref.ref(array))
        arrays = [ref() for ref in self._watched]
        alive = [array for array in arrays if array is not None]
        self._watched = [weakref.ref(array) for array in alive]
        self.most = max(self.most, elements(alive))
        return array
