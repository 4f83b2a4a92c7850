"""Flat vectors, cut into n parts of one size. Zeros are added at the end, so that the sizes fit."""

from collections.abc import Sequence

import numpy as np

from examples._shared.data import Array


def padded(vector: Array, n: int) -> Array:
    """Return the vector with enough zeros at its end to be cut into n equal parts."""
    return np.pad(vector, (0, -len(vector) % n))


def part(vector: Array, rank: int, n: int) -> Array:
    """Return one of n parts of a padded vector, as a view."""
    return np.split(vector, n)[rank]


def fill(vectors: Sequence[Array], flat: Array) -> None:
    """Write the values of the flat vector to the vectors, one after the other."""
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
    layers = [np.hstack(parts)[:, :size] for size, parts in zip(sizes, by_layer, strict=True)]
    return np.hstack([[part(padded(row, n), rank, n) for row in layer] for layer in layers])
