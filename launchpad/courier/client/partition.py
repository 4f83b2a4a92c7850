"""Partitions of keys among shards. A key has the same shard in every process, on every host, in every run.

    keys    [7, 1, 8, 3]            partition.cut(keys, 2)
    shard 0 [1, 3] from [1, 3]      Share(0, keys=[1, 3], positions=[1, 3])
    shard 1 [2, 3] from [0, 2]      Share(1, keys=[2, 3], positions=[0, 2])      RangePartition(10)

Several keys are an array, a list, a slice or a range. Everything else is one key. This module knows nothing
about clients. It imports numpy only for arrays, when the process has already imported numpy.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Share:
    """The keys of one shard, and their positions among the keys that were cut."""

    shard: int
    keys: Any  # as this shard counts them
    positions: Any  # a slice, or an array or a list of ints

    def __len__(self) -> int:
        positions = self.positions
        return positions.stop - positions.start if isinstance(positions, slice) else len(positions)

    def take(self, values: Any) -> Any:
        """Return the entries of `values` for these keys.

        `values` is an array or a list, with an entry for each key that was cut.
        """
        if isinstance(values, list) and not isinstance(self.positions, slice):
            return [values[position] for position in self.positions]
        return values[self.positions]


class Partition(ABC):
    """A rule that decides which of `n` shards a key belongs to.

    A partition keeps no state and can be pickled. Equal partitions cut alike.
    """

    @abstractmethod
    def locate(self, key: Any, n: int) -> tuple[int, Any]:
        """Return the shard of one key, and the key as that shard counts it.

        Raises:
            IndexError: No shard has the key.
            TypeError: The value is not a key.
        """

    @abstractmethod
    def cut(self, keys: Any, n: int) -> list[Share]:
        """Return the keys by shard, leaving out shards that have none of them.

        Raises:
            IndexError: No shard has one of the keys.
            TypeError: One of the values is not a key.
            ValueError: The array has more than one axis.
        """


@dataclass(frozen=True)
class RangePartition(Partition):
    """The ints from 0 to `size` in ranges, one for each shard. The sizes of the ranges differ by at most 1.

    Example:
        partition = lp.RangePartition(1_000_000)
        low, high = partition.bounds(me.replica_index, me.num_replicas)
        weights = np.zeros(high - low)                 # of one shard of lp.sharded(shards, partition)

    Each shard counts its own keys from 0: the key `low` is 0 at its shard. So you write a shard as if it were
    the only one. The ranges are those of `np.array_split`. Keys are ints, arrays and lists of ints in any
    order, and slices and ranges without a step.

    Raises:
        ValueError: The size is not an int, or is negative.
    """

    size: int

    def __post_init__(self) -> None:
        if not hasattr(self.size, "__index__") or self.size < 0:
            raise ValueError(
                f"RangePartition takes how many keys there are, not {self.size!r}: of 0 to size - 1"
            )

    def bounds(self, shard: int, n: int) -> tuple[int, int]:
        """Return the first key of a shard among `n` shards, and the key after the shard's last key.

        Raises:
            IndexError: There is no such shard.
        """
        if not 0 <= shard < n:
            raise IndexError(f"there is no shard {shard} among {n}: they count from 0")
        quotient, larger = divmod(self.size, n)  # the first `larger` shards have one key more
        first = shard * quotient + min(shard, larger)
        end = (shard + 1) * quotient + min(shard + 1, larger)
        return first, end

    def locate(self, key: Any, n: int) -> tuple[int, int]:
        if not hasattr(key, "__index__"):
            raise TypeError(f"the keys of {self} are ints, not {key!r}")
        key = key.__index__()
        if not 0 <= key < self.size:
            raise self._outside(key)
        quotient, larger = divmod(self.size, n)
        shard = key // (quotient + 1)
        if shard > larger or (shard == larger and quotient):
            shard = larger + (key - larger * (quotient + 1)) // quotient
        return shard, key - self.bounds(shard, n)[0]

    def cut(self, keys: Any, n: int) -> list[Share]:
        if isinstance(keys, slice | range):
            return self._cut_range(keys, n)
        if isinstance(keys, list):
            located = [self.locate(key, n) for key in keys]
            return [
                Share(shard, [located[at][1] for at in positions], positions)
                for shard, positions in _by_shard(shard for shard, _ in located)
            ]
        import numpy as np

        keys = _checked_array(keys)
        if keys.dtype.kind not in "iu":
            raise TypeError(f"the keys of {self} are ints, not an array of {keys.dtype}")
        if len(keys):
            least = keys.min()
            if least < 0:
                raise self._outside(least)
            most = keys.max()
            if most >= self.size:
                raise self._outside(most)
        lows = [self.bounds(shard, n)[0] for shard in range(n)]
        order: Any = None  # the order that sorts the keys, unless they are sorted
        if (keys[1:] < keys[:-1]).any():
            order = np.argsort(keys, kind="stable")
            keys = keys[order]
        ends = [*np.searchsorted(keys, lows).tolist(), len(keys)]
        shares = []
        for shard, (start, end) in enumerate(itertools.pairwise(ends)):
            if start < end:
                positions = slice(start, end) if order is None else order[start:end]
                shares.append(Share(shard, keys[start:end] - lows[shard], positions))
        return shares

    def _cut_range(self, keys: slice | range, n: int) -> list[Share]:
        start = keys.start
        stop = keys.stop
        if isinstance(keys, slice):
            start = start or 0
            stop = self.size if stop is None else stop
        if keys.step not in (None, 1):
            raise ValueError(f"{keys!r} has a step: give the keys as an array, np.arange(…)")
        if not 0 <= start <= stop <= self.size:
            raise self._outside(keys)
        shares = []
        for shard in range(n):
            low, high = self.bounds(shard, n)
            first = max(start, low)
            end = min(stop, high)
            if first < end:
                own_keys = type(keys)(first - low, end - low)
                shares.append(Share(shard, own_keys, slice(first - start, end - start)))
        return shares

    def _outside(self, key: Any) -> IndexError:
        return IndexError(
            f"the keys of {self} are 0 to {self.size - 1}, and {key!r} is not among them"
        )


@dataclass(frozen=True)
class HashPartition(Partition):
    """A partition by a digest of the key. An int goes to the shard of its remainder.

    Example:
        users = lp.sharded(tables, lp.HashPartition())
        users.get(["ada", "grace"])            # a list, in this order
        users.get("ada")                       # for one key, the answer of its shard

    A key is a str, bytes, an int, None or a tuple of these. Several keys are an array or a list. Shards get
    their keys unchanged.
    """

    def locate(self, key: Any, n: int) -> tuple[int, Any]:
        return shard_of(key, n), key

    def cut(self, keys: Any, n: int) -> list[Share]:
        if isinstance(keys, slice):
            raise TypeError(f"{self} has no order that {keys!r} could be a part of: name the keys")
        if isinstance(keys, list | range):
            groups = _by_shard(shard_of(key, n) for key in keys)
            return [Share(i, [keys[at] for at in positions], positions) for i, positions in groups]
        import numpy as np

        keys = _checked_array(keys)
        if keys.dtype.kind in "iu":
            shards = (keys if keys.itemsize == 8 else keys.astype(np.int64)) % n
        else:
            shards = np.array([shard_of(key, n) for key in keys.tolist()], int)
        order = np.argsort(shards, kind="stable")
        ends = np.searchsorted(shards[order], np.arange(n + 1)).tolist()
        parts = [(i, order[ends[i] : ends[i + 1]]) for i in range(n)]
        return [Share(i, keys[positions], positions) for i, positions in parts if len(positions)]


def is_many(keys: Any) -> bool:
    """Return True for several keys, and False for one key."""
    return isinstance(keys, slice | range) or is_column(keys)


def is_column(value: Any) -> bool:
    """Return True for an array or a list, which has an entry for each key."""
    shape = getattr(value, "shape", ())
    return isinstance(value, list) or (isinstance(shape, tuple) and len(shape) > 0)


def shard_of(key: Any, n: int) -> int:
    """Return which of `n` shards a key belongs to. The answer is the same in every process, host and run.

    For an int, the remainder decides. For other keys, a digest of their content decides, because `hash` of a
    str differs from process to process. Raises TypeError for keys that are not int, str, bytes, None or
    tuples of these.
    """
    if hasattr(key, "__index__"):  # numpy's ints, too
        return int(key.__index__() % n)
    import hashlib

    digest = hashlib.blake2b(repr(_plain(key)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % n


def _plain(key: Any) -> Any:
    """Return the key, converted to types whose repr is complete and the same in every Python version."""
    if isinstance(key, tuple):
        return tuple(_plain(part) for part in key)
    if hasattr(key, "__index__"):
        return int(key.__index__())
    if isinstance(key, str):
        return key.encode("unicode_escape").decode()
    if key is None or isinstance(key, bytes):
        return key if key is None else bytes(key)
    raise TypeError(
        f"the key of a sharded call is an int, str, bytes, None or a tuple of these, not {key!r}"
        f" of type {type(key).__qualname__}: others are not the same in every process"
    )


def _by_shard(shards: Iterable[int]) -> list[tuple[int, list[int]]]:
    """Return the positions of each shard in a list of shards, in the order of the shards."""
    positions: dict[int, list[int]] = {}
    for position, shard in enumerate(shards):
        positions.setdefault(shard, []).append(position)
    return sorted(positions.items())


def _checked_array(keys: Any) -> Any:
    import numpy as np

    array = np.asarray(keys)
    if array.ndim != 1:
        raise ValueError(
            f"keys are a list or an array of one dimension, not of shape {array.shape}"
        )
    return array
