"""Columns: arrays as raw bytes, and the signature that describes them. For clients; needs numpy.

    item       a structure of arrays         signature  its structure, and the dtype and shape of each column
    columns    the bytes of each array       batch      for each column, the bytes of n items in a row

The server never decodes a signature. It only needs to know that items with equal signatures can be stacked.
"""

from __future__ import annotations

import functools
import pickle
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from launchpad.courier import trees
from launchpad.courier.codec import pickling
from launchpad.courier.trees import Spec, Structure

_OUT_OF_BAND_FROM = 4 << 10
"""The size from which buffers are sent out of band. Courier would read a message with smaller ones twice."""


class SampleInfo(NamedTuple):
    """Information about a sampled item. For a batch, each field is an array with one number for each item.

    Example:
        info = replay.sample_batch("transitions", batch_size=32).info
        weights = (info.probability * info.table_size) ** -0.4

    Attributes:
        key: The item's key, for `update_priorities` and `delete`.
        probability: The probability with which the item was chosen, for importance weights.
        table_size: The number of items in the table when the item was sampled.
        priority: The item's priority when it was sampled.
        times_sampled: How often the item has been sampled, including this time.
    """

    key: Any
    probability: Any
    table_size: Any
    priority: Any
    times_sampled: Any


class ReplaySample(NamedTuple):
    """A sampled item, or a batch of items with the same structure. In a batch, arrays have a new first axis.

    Example:
        batch = replay.sample_batch("transitions", batch_size=32)
        print(batch.data["reward"].mean(), batch.info.probability)
    """

    info: SampleInfo
    data: Any


class Signature(NamedTuple):
    """The structure of an item, with the dtype and shape of each column."""

    structure: Structure
    # The dtype and shape of each column of one item.
    specs: tuple[Spec, ...]

    def without_order(self) -> Signature:
        """Return the signature without the order of dicts. If two results are equal, items can be stacked."""
        return Signature(trees.without_order(self.structure), self.specs)

    def __str__(self) -> str:
        texts = (trees.spec_text(dtype, shape) for dtype, shape in self.specs)
        return trees.described(self.structure, texts)


def arrays_of(value: Any) -> tuple[list[Any], Structure]:
    """Return the leaves as contiguous arrays, and the structure.

    Raise TypeError, with the path, for a leaf that is not an array or a number.
    """
    import numpy as np

    leaves: list[Any] = []
    structure = trees.flatten(value, leaves)
    if not leaves:
        raise TypeError(f"an item holds at least one array or number, and {value!r} holds none")
    for place, leaf in enumerate(leaves):
        if trees.is_masked(leaf):
            raise TypeError(f"{trees.path_of(value, place)} {trees.refusal_of_masked('replay')}")
        array = np.asarray(leaf, order="C")
        if array.dtype.kind in "OV" or np.dtype(array.dtype.str) != array.dtype:
            raise TypeError(
                f"{trees.path_of(value, place)} is a {type(leaf).__name__} of dtype {array.dtype}: replay"
                " keeps arrays and numbers, whose bytes are all there is to them"
            )
        leaves[place] = array
    return leaves, structure


def buffer_of(array: Any) -> pickle.PickleBuffer | bytes:
    """Return the bytes of a contiguous array, without a copy unless it is small."""
    if array.nbytes < _OUT_OF_BAND_FROM:
        return bytes(array.tobytes())
    import numpy as np

    return pickle.PickleBuffer(array.reshape(-1).view(np.uint8))


@functools.lru_cache(1024)
def encode_signature(signature: Signature) -> bytes:
    """Encode a signature.

    Equal signatures give equal bytes, unless they contain certain classes that are pickled by value.
    """
    return pickling.encode(_with_interned(tuple(signature)))[0]


@functools.lru_cache(1024)
def decode_signature(encoded: bytes) -> Signature:
    """Decode a signature from the bytes of `encode_signature`."""
    return Signature(*pickle.loads(encoded))


def _with_interned(value: Any) -> Any:
    """Return the value, with equal strings replaced by the same object.

    A pickle depends on which of its objects are the same. Without this, equal signatures could give
    different bytes.
    """
    if type(value) is tuple:
        return tuple([_with_interned(part) for part in value])
    return sys.intern(value) if type(value) is str else value


def stacked(signature: Signature, buffers: Sequence[Any], n: int) -> list[Any]:
    """Return the columns of `n` items, as arrays over the memory of the buffers."""
    import numpy as np

    arrays = []
    for (dtype, shape), buffer in zip(signature.specs, buffers, strict=True):
        if len(buffer):
            arrays.append(np.frombuffer(buffer, dtype).reshape(n, *shape))
        else:
            arrays.append(np.empty((n, *shape), dtype))
    return arrays
