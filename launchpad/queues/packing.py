"""Items as the queue's worker keeps them: bytes that it never unpacks."""

from __future__ import annotations

from launchpad.courier.codec import packing
from launchpad.courier.codec.iterators import is_stream
from launchpad.courier.codec.packing import Item, PackedItem, unpack

__all__ = ["Item", "PackedItem", "pack", "unpack"]


def pack(value: object, *, copy: bool = False) -> Item:
    """Pack a value as `packing.pack` does. Raise TypeError for a stream, because it is not a single value."""
    if is_stream(value):
        raise TypeError(
            f"an item is a value, and {value!r} gives several: use put_from() or put_many()"
        )
    return packing.pack(value, copy=copy)
