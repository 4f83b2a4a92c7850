"""The encoding of a stream's items in its frames, and of items that have arrived but were not taken yet.

    ITEM    one item: its pickle, and its buffers
    ITEMS   several small items: the pickle of a list. A scalar in the list is an item itself, and a
            bytearray, which is not a scalar, is the pickle of an item

Scalars are pickled and unpickled together, which costs a tenth of doing so one by one. An item that may
change is pickled before the iterator goes on. An item that may fail to unpickle is unpickled when it is
taken.
"""

from __future__ import annotations

import pickle
from typing import Any

from launchpad.courier.codec import pickling
from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol.framing import Chunk

SHARED_ITEMS = 256  # the most items in a frame: a quarter of a quick stream's window
WEIGHT_BYTES = 128  # an item counts once more for every 128 bytes
SHARED_BYTES = 4 << 10  # larger items have a frame of their own, and are not copied
# More bytes than any frame of several items has.
FRAME_BYTES = 2 * (SHARED_ITEMS * WEIGHT_BYTES + SHARED_BYTES)

SIZED = frozenset({bytes, str})
UNSIZED = pickling.SCALARS - SIZED
LARGEST_SIZED = 512
LARGEST_INT = 1 << 8 * WEIGHT_BYTES

_dumps = pickle.dumps
_loads = pickle.loads


class EncodedItem:
    """An item that arrived in a frame of its own. It stays encoded until it is taken."""

    __slots__ = ("body", "buffers")

    def __init__(self, body: Chunk, buffers: Any) -> None:
        self.body = body
        self.buffers = buffers


def encode_shared(items: list[Any]) -> bytes:
    """Return the body of a frame with these items: small scalars, and pickles of others as bytearrays."""
    return _dumps(items, 5)


def decode_shared(body: Chunk) -> list[Any]:
    """Return the items that `encode_shared` was given. Raise ProtocolError for anything else."""
    try:
        items = _loads(body)
    except Exception as error:
        raise ProtocolError(f"items of a stream that cannot be read: {error!r}") from error
    if type(items) is not list:
        raise ProtocolError("items of a stream that are no list")
    return items


def decode_item(item: Any) -> Any:
    """Return the item itself. Raises what unpickling raises."""
    if type(item) is bytearray:
        return _loads(item)
    if type(item) is EncodedItem:
        return _loads(item.body, buffers=item.buffers)
    return item
