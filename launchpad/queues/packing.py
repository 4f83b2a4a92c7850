"""Items as the queue's worker keeps them: bytes that it does not look into.

An item is pickled where it is put and unpickled where it is taken; between the two it is bytes, and the
buffers of its arrays, which are never copied into them.
"""

from __future__ import annotations

import pickle
from typing import Any

from launchpad.courier.buffers import copies
from launchpad.courier.codec import pickling
from launchpad.courier.codec.iterators import is_stream

_loads = pickle.loads
_encode = pickling.encode


class PackedItem:
    """An item with large buffers: its pickle, and what that leaves out."""

    __slots__ = ("body", "buffers")

    def __init__(self, body: bytes, *buffers: Any) -> None:
        self.body = body
        self.buffers = buffers

    def __len__(self) -> int:
        """Its bytes."""
        return len(self.body) + sum(memoryview(each).nbytes for each in self.buffers)

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedItem, (self.body, *map(pickle.PickleBuffer, self.buffers))


Item = bytes | PackedItem


def pack(value: object, *, copy: bool = False) -> Item:
    """The item of a value; `copy`: also of its arrays, for one that is sent later.

    Raises what pickling raises, and TypeError for an iterator, which is not a value.
    """
    if is_stream(value):
        raise TypeError(
            f"an item is a value, and {value!r} gives several: use put_from() or put_many()"
        )
    body, views = _encode(value)
    if not views:
        return body
    return PackedItem(body, *(copies(views) if copy else views))


def unpack(item: Item) -> Any:
    """The value again; each call makes another one, but of arrays the first has the memory."""
    if type(item) is bytes:
        return _loads(item)
    assert isinstance(item, PackedItem)
    return _loads(item.body, buffers=item.buffers)
