"""Selectors: rules that choose the item to sample next, or the item to remove when a table is full.

    Uniform                          any item, all with the same probability
    Prioritized(priority_exponent)   any item, in proportion to priority ** priority_exponent
    Fifo, Lifo                       the item inserted first, last
    MaxHeap, MinHeap                 the item with the highest, lowest priority; among equal priorities, the
                                     item whose priority was set first

A selector is pure: it knows keys and priorities, but no items. The same seed and the same calls give the same
keys.
"""

from __future__ import annotations

import abc
import heapq
import math
import random
from array import array
from collections import OrderedDict

# The largest weight that is allowed. The sum of many weights of this size is still finite.
_LARGEST_WEIGHT = 1e300


class Selector(abc.ABC):
    """A rule that chooses among the keys of a table. Not thread-safe.

    `insert` takes a new key. `update` and `delete` raise KeyError if they don't know the key, and `sample`
    raises IndexError if there are no keys.

    Example:
        selector = lp.replay.Prioritized(1.0)       # a table has two selectors, and calls them like this
        selector.insert(1, priority=3.0)
        selector.insert(2, priority=1.0)
        key, probability = selector.sample()        # 1 0.75, or 2 0.25
    """

    @abc.abstractmethod
    def insert(self, key: int, priority: float) -> None:
        """Add a new key."""

    @abc.abstractmethod
    def update(self, key: int, priority: float) -> None:
        """Change the priority of a key."""

    @abc.abstractmethod
    def delete(self, key: int) -> None:
        """Remove a key."""

    @abc.abstractmethod
    def sample(self) -> tuple[int, float]:
        """Choose a key, and return it with the probability of this choice.

        Raises:
            IndexError: there are no keys.
        """

    @abc.abstractmethod
    def clear(self) -> None:
        """Remove all keys."""

    @abc.abstractmethod
    def __len__(self) -> int: ...

    def check(self, priority: float) -> None:
        """Check a priority, before anything is changed.

        Raises:
            ValueError: the selector does not accept this priority.
        """
        if math.isnan(priority):
            raise ValueError(f"{self!r} takes a number as a priority, not {priority!r}")

    def seed(self, seed: int) -> None:
        """Seed the random choices from now on."""
        return

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Uniform(Selector):
    """A selector that chooses any item, all with the same probability.

    Example:
        lp.replay.Table("all", sampler=lp.replay.Uniform(), remover=lp.replay.Fifo(), max_size=1000)
    """

    def __init__(self) -> None:
        self._random = random.Random()
        self._keys: list[int] = []
        self._places: dict[int, int] = {}

    def insert(self, key: int, priority: float) -> None:
        self._places[key] = len(self._keys)
        self._keys.append(key)

    def update(self, key: int, priority: float) -> None:
        self._places[key]

    def delete(self, key: int) -> None:
        place = self._places.pop(key)
        last = self._keys.pop()
        if last != key:
            self._keys[place] = last
            self._places[last] = place

    def sample(self) -> tuple[int, float]:
        n = len(self._keys)
        if not n:
            raise IndexError("there is nothing to sample")
        return self._keys[int(self._random.random() * n)], 1 / n

    def clear(self) -> None:
        self._keys.clear()
        self._places.clear()

    def seed(self, seed: int) -> None:
        self._random.seed(seed)

    def __len__(self) -> int:
        return len(self._keys)


class Prioritized(Selector):
    """A selector whose probabilities are in proportion to `priority ** priority_exponent`.

    A priority of 0 gives a probability of 0, unless all priorities are 0: then all items are equally likely.
    (Schaul et al., "Prioritized Experience Replay", arXiv 1511.05952; the exponent is their alpha.)

    It uses a sum tree: leaf i is the weight of the i-th key, and every other node is the sum of the two nodes
    below it. Each change recomputes the sums on the way up, so that rounding errors don't accumulate.

    Example:
        lp.replay.Table("errors", lp.replay.Prioritized(0.6), remover=lp.replay.Fifo(), max_size=1000)

    Raises:
        ValueError: the exponent is less than 0, or not finite.
    """

    def __init__(self, priority_exponent: float) -> None:
        if not 0 <= priority_exponent < math.inf:
            raise ValueError(f"priority_exponent is 0 or more, not {priority_exponent!r}")
        self.priority_exponent = float(priority_exponent)
        self._random = random.Random()
        self._tree = array("d")
        self.clear()

    def check(self, priority: float) -> None:
        """Check that a priority is not negative, and that its weight is finite.

        Raises:
            ValueError: the selector does not accept this priority.
        """
        try:
            weight = self._weight(priority) if priority >= 0 else math.nan
        except OverflowError:
            weight = math.inf
        if not weight <= _LARGEST_WEIGHT:
            raise ValueError(
                f"{self!r} takes priorities of 0 or more, and finite ones: {priority!r}"
            )

    def insert(self, key: int, priority: float) -> None:
        place = len(self._keys)
        if place == self._capacity:
            leaves = self._tree[self._capacity :]
            self._capacity *= 2
            self._tree = (
                array("d", bytes(8 * self._capacity)) + leaves + array("d", bytes(8 * place))
            )
            for node in range(self._capacity - 1, 0, -1):
                self._tree[node] = self._tree[2 * node] + self._tree[2 * node + 1]
        self._places[key] = place
        self._keys.append(key)
        self._set(place, self._weight(priority))

    def update(self, key: int, priority: float) -> None:
        self._set(self._places[key], self._weight(priority))

    def delete(self, key: int) -> None:
        place = self._places.pop(key)
        last_key = self._keys.pop()
        last = len(self._keys)
        if last_key != key:
            self._keys[place] = last_key
            self._places[last_key] = place
            self._set(place, self._tree[self._capacity + last])
        self._set(last, 0.0)

    def sample(self) -> tuple[int, float]:
        n = len(self._keys)
        if not n:
            raise IndexError("there is nothing to sample")
        tree = self._tree
        total = self._tree[1]
        if total <= 0:
            return self._keys[int(self._random.random() * n)], 1 / n
        left_over = self._random.random() * total
        node = 1
        while node < self._capacity:
            node *= 2
            # Rounding may leave `left_over` a little too large. Never descend into a node without weight.
            if left_over >= tree[node] and tree[node + 1] > 0:
                left_over -= tree[node]
                node += 1
        return self._keys[node - self._capacity], tree[node] / total

    def clear(self) -> None:
        self._capacity = 64
        self._tree = array("d", bytes(8 * 2 * self._capacity))
        self._keys: list[int] = []
        self._places: dict[int, int] = {}

    def seed(self, seed: int) -> None:
        self._random.seed(seed)

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"Prioritized({self.priority_exponent:g})"

    def _weight(self, priority: float) -> float:
        return 0.0 if priority == 0 else float(priority**self.priority_exponent)

    def _set(self, place: int, weight: float) -> None:
        tree = self._tree
        node = self._capacity + place
        tree[node] = weight
        while node > 1:
            node //= 2
            tree[node] = tree[2 * node] + tree[2 * node + 1]


class Fifo(Selector):
    """A selector that chooses the item inserted first.

    Example:
        lp.replay.Table("recent", sampler=lp.replay.Uniform(), remover=lp.replay.Fifo(), max_size=1000)
    """

    _is_last = False

    def __init__(self) -> None:
        self._keys: OrderedDict[int, None] = OrderedDict()

    def insert(self, key: int, priority: float) -> None:
        self._keys[key] = None

    def update(self, key: int, priority: float) -> None:
        self._keys[key]

    def delete(self, key: int) -> None:
        del self._keys[key]

    def sample(self) -> tuple[int, float]:
        if not self._keys:
            raise IndexError("there is nothing to sample")
        return next(reversed(self._keys) if self._is_last else iter(self._keys)), 1.0

    def clear(self) -> None:
        self._keys.clear()

    def __len__(self) -> int:
        return len(self._keys)


class Lifo(Fifo):
    """A selector that chooses the item inserted last.

    Example:
        lp.replay.Table("newest", sampler=lp.replay.Lifo(), remover=lp.replay.Fifo(), max_size=1000)
    """

    _is_last = True


class MinHeap(Selector):
    """A selector that chooses the item with the lowest priority.

    If several items have this priority, it chooses the item whose priority was set first. A restored table
    doesn't know the order in which priorities were set; there, MinHeap chooses the item inserted first.

    Example:
        lp.replay.Table("best", sampler=lp.replay.Uniform(), remover=lp.replay.MinHeap(), max_size=1000)
    """

    _sign = 1.0

    def __init__(self) -> None:
        self.clear()

    def insert(self, key: int, priority: float) -> None:
        self._changes += 1
        entry = self._sign * priority, self._changes, key
        self._entries[key] = entry
        heapq.heappush(self._heap, entry)

    def update(self, key: int, priority: float) -> None:
        self._entries[key]
        self.insert(key, priority)
        self._tidy()

    def delete(self, key: int) -> None:
        del self._entries[key]
        self._tidy()

    def sample(self) -> tuple[int, float]:
        if not self._entries:
            raise IndexError("there is nothing to sample")
        # Skip outdated entries: their keys were deleted, or the keys' priorities were set again.
        while self._entries.get(self._heap[0][2]) != self._heap[0]:
            heapq.heappop(self._heap)
        return self._heap[0][2], 1.0

    def clear(self) -> None:
        self._changes = 0
        self._heap: list[tuple[float, int, int]] = []
        self._entries: dict[int, tuple[float, int, int]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def _tidy(self) -> None:
        """Rebuild the heap if it has far more outdated entries than valid ones."""
        if len(self._heap) > 64 + 2 * len(self._entries):
            self._heap = list(self._entries.values())
            heapq.heapify(self._heap)


class MaxHeap(MinHeap):
    """A selector that chooses the item with the highest priority. For equal priorities, see MinHeap.

    Example:
        lp.replay.Table("best", sampler=lp.replay.MaxHeap(), remover=lp.replay.MinHeap(), max_size=1000)
    """

    _sign = -1.0
