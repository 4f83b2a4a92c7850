"""Values as bytes that are passed on: pickled by whom they come from, unpickled by whom they are for.

What lies between the two (the worker of a queue, the thread of a pool) doesn't look into them. The buffers of
arrays are apart from the pickle, and are never copied into it.
"""

from __future__ import annotations

import pickle
from typing import Any

from launchpad.courier.buffers import copies
from launchpad.courier.codec import pickling

_loads = pickling.loads
_encode = pickling.encode


class PackedItem:
    """A value with large buffers: its pickle, and what that leaves out."""

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

    Raises what pickling raises.
    """
    body, views = _encode(value)
    if not views:
        return body
    return PackedItem(body, *(copies(views) if copy else views))


def unpack(item: Item) -> Any:
    """The value again; each call makes another one, but of arrays the first has the memory."""
    if type(item) is bytes:
        return _loads(item)
    assert isinstance(item, PackedItem)
    return _loads(item.body, item.buffers)
