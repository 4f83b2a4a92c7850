"""Flat vectors in parts: n of one size, for which zeros are added at the end."""

from collections.abc import Sequence

import numpy as np

from examples._shared.digits import Array


def padded(vector: Array, n: int) -> Array:
    """Return it with as many zeros at its end as it takes to be cut into n parts."""
    return np.pad(vector, (0, -len(vector) % n))


def part(vector: Array, rank: int, n: int) -> Array:
    """Return one of n parts of a padded vector: a view."""
    return np.split(vector, n)[rank]


def fill(vectors: Sequence[Array], flat: Array) -> None:
    """Write to these what follows one another in the flat one."""
    ends = np.cumsum([len(vector) for vector in vectors])
    for vector, values in zip(vectors, np.split(flat, ends[:-1]), strict=True):
        vector[:] = values


def resharded(shards: Sequence[Array], sizes: Sequence[int], rank: int, n: int) -> Array:
    """Return the shard of one rank of n, from those of any number of ranks.

    A shard has a row for the parameters and one for each moment. In it are the rank's parts of layers of
    these sizes, one after the other.
    """
    ends = np.cumsum([-(-size // len(shards)) for size in sizes])
    by_layer = zip(*(np.split(shard, ends[:-1], axis=1) for shard in shards), strict=True)
    wholes = [np.hstack(parts)[:, :size] for size, parts in zip(sizes, by_layer, strict=True)]
    return np.hstack([[part(padded(row, n), rank, n) for row in whole] for whole in wholes])
