"""Values as bytes that are passed on: the sender pickles them, and the receiver unpickles them.

The code between the two (the worker of a queue, the thread of a pool) doesn't look into them. The buffers of
arrays are separate from the pickle, and are never copied into it.
"""

from __future__ import annotations

import pickle
from typing import Any

from launchpad.courier.buffers import copies
from launchpad.courier.codec import pickling

_loads = pickling.loads
_encode = pickling.encode


class PackedItem:
    """A value with large buffers: its pickle, and the buffers that the pickle leaves out."""

    __slots__ = ("body", "buffers")

    def __init__(self, body: bytes, *buffers: Any) -> None:
        self.body = body
        self.buffers = buffers

    def __len__(self) -> int:
        """Return the item's size in bytes."""
        return len(self.body) + sum(memoryview(buffer).nbytes for buffer in self.buffers)

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedItem, (self.body, *map(pickle.PickleBuffer, self.buffers))


Item = bytes | PackedItem


def pack(value: object, *, copy: bool = False) -> Item:
    """Return the item of a value. With `copy`, the item has copies of the arrays, so it can be sent later.

    Raises what pickling raises.
    """
    body, views = _encode(value)
    if not views:
        return body
    if copy:
        views = copies(views)
    return PackedItem(body, *views)


def unpack(item: Item) -> Any:
    """Return the value of an item. Each call makes a new value, but its arrays use the item's memory."""
    if type(item) is bytes:
        return _loads(item)
    assert isinstance(item, PackedItem)
    return _loads(item.body, item.buffers)
