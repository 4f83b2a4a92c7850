"""Table: items with keys and priorities, and the rules by which they are sampled and removed.

    insert ──can_insert?──▶ ┌──────────────────────────────┐ ──can_sample?──▶ sample
                            │ items   key → priority, data │
    remover ◀─── full ──────└──────────────────────────────┘ ──max_times_sampled──▶ removed

Pure: nothing waits here, and nothing is sent. The server (server.py) does both.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from launchpad.courier.checks import is_whole
from launchpad.errors import DefinitionError
from launchpad.replay.rate_limiters import MinSize, QueueLimiter, RateLimiter, StackLimiter
from launchpad.replay.selectors import Fifo, Lifo, Selector


class TableItem:
    """An item of a table."""

    __slots__ = ("data", "key", "priority", "times_sampled")

    def __init__(self, key: int, priority: float, data: Any, times_sampled: int = 0) -> None:
        self.key = key
        self.priority = priority
        self.data = data
        self.times_sampled = times_sampled


class Sampled(NamedTuple):
    """A sampled item, with its state at that moment."""

    key: int
    probability: float
    table_size: int
    priority: float
    times_sampled: int
    data: Any


@dataclass(frozen=True)
class TableInfo:
    """The state of a table, and its counts since the table was made or reset.

    Example:
        info = replay.info()["transitions"]
        print(f"{info.size} of {info.max_size} items; {info.samples / info.inserts:.1f} samples each")

    Attributes:
        diff: `inserts · samples_per_insert - samples`, which the limiter keeps between min_diff and max_diff.
        lowest_diff, highest_diff: The lowest and the highest `diff` while there were enough items to sample.
        waiting_inserts, waiting_samples: The number of calls that wait for the limiter.
    """

    name: str
    size: int
    max_size: int
    max_times_sampled: int
    sampler: str
    remover: str
    rate_limiter: str
    inserts: int
    samples: int
    deletes: int
    diff: float
    min_diff: float
    max_diff: float
    lowest_diff: float
    highest_diff: float
    waiting_inserts: int = 0
    waiting_samples: int = 0


class Table:
    """A table of a replay server, with its selectors for sampling and removal and its rate limiter.

    Example:
        lp.replay.Table(
            "transitions",
            sampler=lp.replay.Prioritized(0.6),
            remover=lp.replay.Fifo(),
            max_size=100_000,
            rate_limiter=lp.replay.SampleToInsertRatio(8, min_size_to_sample=1000, error_buffer=800),
        )

    Each table works on its own copies of the selectors and the limiter.

    Args:
        name: The name that clients use.
        sampler: Chooses the item to sample.
        remover: Chooses the item to remove when a new one comes and the table is full.
        max_size: The largest number of items.
        max_times_sampled: An item is removed once it was sampled this often. 0 means no limit.
        rate_limiter: Decides when inserts and samples must wait. By default, samples wait until the table has
            an item.

    Raises:
        DefinitionError: a size is out of range, or the limiter waits for more items than `max_size`.
    """

    def __init__(
        self,
        name: str,
        sampler: Selector,
        remover: Selector,
        max_size: int,
        max_times_sampled: int = 0,
        rate_limiter: RateLimiter | None = None,
    ) -> None:
        limiter = MinSize(1) if rate_limiter is None else rate_limiter
        for argument, value, kind in (
            ("sampler", sampler, Selector),
            ("remover", remover, Selector),
            ("rate_limiter", limiter, RateLimiter),
        ):
            if not isinstance(value, kind):
                raise TypeError(
                    f"the {argument} of table {name!r} is a {kind.__name__}, not {value!r}"
                )
        if not name or not isinstance(name, str):
            raise DefinitionError(f"a table has a name, not {name!r}")
        if not (is_whole(max_size, at_least=1) and is_whole(max_times_sampled, at_least=0)):
            raise DefinitionError(
                f"table {name!r}: expected whole numbers, max_size >= 1 and max_times_sampled >= 0,"
                f" got {max_size!r} and {max_times_sampled!r}"
            )
        if limiter.min_size_to_sample > max_size:
            raise DefinitionError(
                f"table {name!r} could never be sampled: {limiter!r} waits for more than its"
                f" max_size={max_size}"
            )
        self.name = name
        self.max_size = max_size
        self.max_times_sampled = max_times_sampled
        self.sampler = copy.deepcopy(sampler)
        self.remover = copy.deepcopy(remover)
        self.rate_limiter = copy.deepcopy(limiter)
        self._items: dict[int, TableItem] = {}

    @classmethod
    def queue(cls, name: str, max_size: int) -> Self:
        """Return a table whose items are sampled once, the oldest first. If it is full, inserts wait."""
        return cls(name, Fifo(), Fifo(), max_size, 1, QueueLimiter(max_size))

    @classmethod
    def stack(cls, name: str, max_size: int) -> Self:
        """Return a table whose items are sampled once, the newest first. If it is full, inserts wait."""
        return cls(name, Lifo(), Lifo(), max_size, 1, StackLimiter(max_size))

    def can_insert(self) -> bool:
        """Return True if the rate limiter allows an insert now."""
        return self.rate_limiter.can_insert()

    def can_sample(self) -> bool:
        """Return True if the rate limiter allows a sample now."""
        return self.rate_limiter.can_sample()

    def check(self, priority: float) -> float:
        """Return the priority as a float. Raise ValueError if a selector does not accept it."""
        priority = float(priority)
        self.sampler.check(priority)
        self.remover.check(priority)
        return priority

    def insert(self, key: int, priority: float, data: Any) -> None:
        """Insert an item. If the table is full, remove another item first.

        If the table already has an item with this key, replace its priority and data instead.
        """
        priority = self.check(priority)
        item = self._items.get(key)
        if item is not None:
            item.data = data
            self.update(key, priority)
            return
        if len(self._items) >= self.max_size:
            self.delete(self.remover.sample()[0])
        self.rate_limiter.insert()
        self._add(TableItem(key, priority, data))

    def sample(self) -> Sampled:
        """Sample one item, and remove it after its `max_times_sampled`-th sample.

        Raise IndexError if the table is empty.
        """
        key, probability = self.sampler.sample()
        item = self._items[key]
        size = len(self._items)
        self.rate_limiter.sample()
        item.times_sampled += 1
        # `times_sampled` may exceed the limit, which may have been higher when the item was saved.
        if 0 < self.max_times_sampled <= item.times_sampled:
            self.delete(key)
        return Sampled(key, probability, size, item.priority, item.times_sampled, item.data)

    def update(self, key: int, priority: float) -> bool:
        """Set the priority of an item. False if there is no item with this key."""
        priority = self.check(priority)
        item = self._items.get(key)
        if item is None:
            return False
        item.priority = priority
        self.sampler.update(key, priority)
        self.remover.update(key, priority)
        return True

    def delete(self, key: int) -> bool:
        """Remove an item. False if there is no item with this key."""
        if self._items.pop(key, None) is None:
            return False
        self.sampler.delete(key)
        self.remover.delete(key)
        self.rate_limiter.delete()
        return True

    def reset(self) -> None:
        """Remove all items, and reset the rate limiter."""
        self._items.clear()
        self.sampler.clear()
        self.remover.clear()
        self.rate_limiter.reset()

    def seed(self, seed: int) -> None:
        """Seed the random choices of both selectors."""
        self.sampler.seed(seed)
        self.remover.seed(seed ^ 0x5EED)

    def items(self) -> list[TableItem]:
        """Return all items in the order in which they were inserted."""
        return list(self._items.values())

    def refill(
        self,
        items: Iterable[TableItem],
        inserts: int,
        samples: int,
        deletes: int,
        diffs: tuple[float, float] = (math.inf, -math.inf),
    ) -> None:
        """Replace the table's items, and the limiter's counts, with saved ones.

        The items must be in the order of `items()`.
        """
        self.reset()
        for item in items:
            self._add(item)
        limiter = self.rate_limiter
        limiter.inserts = inserts
        limiter.samples = samples
        limiter.deletes = deletes
        limiter.lowest_diff, limiter.highest_diff = diffs
        # `max_size` may have been larger when the items were saved.
        while len(self._items) > self.max_size:
            self.delete(self.remover.sample()[0])

    def info(self) -> TableInfo:
        """Return the current state and counts."""
        limiter = self.rate_limiter
        return TableInfo(
            self.name,
            len(self._items),
            self.max_size,
            self.max_times_sampled,
            repr(self.sampler),
            repr(self.remover),
            repr(limiter),
            limiter.inserts,
            limiter.samples,
            limiter.deletes,
            limiter.diff,
            limiter.min_diff,
            limiter.max_diff,
            limiter.lowest_diff,
            limiter.highest_diff,
        )

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: int) -> bool:
        return key in self._items

    def __repr__(self) -> str:
        return f"Table({self.name!r}, {len(self)} of {self.max_size})"

    def _add(self, item: TableItem) -> None:
        self._items[item.key] = item
        self.sampler.insert(item.key, item.priority)
        self.remover.insert(item.key, item.priority)
