"""Nodes for the contract's section on shards."""

from __future__ import annotations

from typing import Any

import numpy as np

import launchpad as lp

SIZE = 1_000_001
SHARDS = 3
PARTITION = lp.RangePartition(SIZE)


class Shard:
    """Its part of a vector, and rows by name."""

    def __init__(self) -> None:
        me = lp.current()
        low, high = PARTITION.bounds(me.replica_index, me.num_replicas)
        self.weights = np.arange(low, high, dtype=float)
        self.rows: dict[str, Any] = {}

    def pull(self, keys: Any) -> Any:
        return self.weights[keys]

    def push(self, keys: Any, values: Any) -> None:
        self.weights[keys] += values

    def put(self, names: list[str], values: list[Any]) -> None:
        self.rows.update(zip(names, values, strict=True))

    def get(self, names: list[str]) -> list[Any]:
        return [self.rows[name] for name in names]

    def scale(self, part: Any, factor: float) -> Any:
        part *= factor  # what arrives is the method's own
        return lp.current().replica_index, part

    def fail(self, keys: Any) -> None:
        raise LookupError(f"{lp.current().name} has none")


def use(shards: list[Any]) -> dict[str, Any]:
    """Does everything once; returns what was not as it should be, and a few of the results."""
    found: dict[str, Any] = {}
    params: Any = lp.sharded(shards, PARTITION)
    dense = params.pull(slice(None))
    params.push(slice(None), np.full(SIZE, 0.5))
    keys = np.random.default_rng(0).integers(0, SIZE, 200_000)
    found["dense"] = bool((dense == np.arange(SIZE)).all())
    found["sparse"] = bool((params.futures.pull(keys).result() == keys + 0.5).all())
    found["one"] = params.pull(SIZE - 1)
    try:
        params.fail([0, SIZE - 1])
    except LookupError as error:
        found["failures"] = [str(error), len(error.__notes__[0].splitlines())]

    table: Any = lp.sharded(shards, lp.HashPartition())
    names = [f"user-{i}" for i in range(100)]
    table.put(names, list(range(100)))
    found["rows"] = table.get(names[::-1]) == list(range(100))[::-1]

    # Megabytes; they are changed as soon as they are on their way.
    whole = np.ones(SIZE)
    parts = np.array_split(whole, SHARDS)
    futures = lp.scatter(shards).futures.scale(lp.parts(parts), 3.0)
    futures += lp.broadcast(shards).futures.scale(whole, 2.0)
    futures += [shards[0].futures.scale(whole, i) for i in range(4, 8)]
    whole[:] = -1.0
    answers = [future.result() for future in futures]
    found["asked"] = [index for index, _ in answers]
    found["sums"] = [float(part.sum()) for _, part in answers]
    found["again"] = [float(part.sum()) for _, part in lp.broadcast(shards).scale(whole, 2.0)]
    return found
