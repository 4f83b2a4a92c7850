"""How the items of a stream stand in its frames, and what stands for one before it is taken.

    ITEM    an item alone: its pickle, and buffers
    ITEMS   several small ones: the pickle of a list, in which a scalar is an item, and a bytearray,
            which is no scalar, the pickle of one

Scalars are pickled and unpickled together, which costs a tenth of doing so one by one. What may change
is pickled before the iterator goes on, and what may fail to unpickle is unpickled in its turn.
"""

from __future__ import annotations

import pickle
from typing import Any

from launchpad.courier.codec import pickling
from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol.framing import Chunk

SHARED_ITEMS = 256  # in a frame, of the smallest: a quarter of a quick stream's window
WEIGHT_BYTES = 128  # an item counts once more for each
SHARED_BYTES = 4 << 10  # larger items have a frame of their own, and are not copied
FRAME_BYTES = 2 * (SHARED_ITEMS * WEIGHT_BYTES + SHARED_BYTES)  # no frame of several has as many

SIZED = frozenset({bytes, str})
UNSIZED = pickling.SCALARS - SIZED
LARGEST_SIZED = 512
LARGEST_INT = 1 << 8 * WEIGHT_BYTES

_dumps, _loads = pickle.dumps, pickle.loads


class EncodedItem:
    """An item that had a frame of its own, until it is taken."""

    __slots__ = ("body", "buffers")

    def __init__(self, body: Chunk, buffers: Any) -> None:
        self.body = body
        self.buffers = buffers


def encode_shared(items: list[Any]) -> bytes:
    """The body of a frame with these items: small scalars, and pickles of others as bytearrays."""
    return _dumps(items, 5)


def decode_shared(body: Chunk) -> list[Any]:
    """What `encode_shared` was given. Raises ProtocolError for what is no such thing."""
    try:
        items = _loads(body)
    except Exception as error:
        raise ProtocolError(f"items of a stream that cannot be read: {error!r}") from error
    if type(items) is not list:
        raise ProtocolError("items of a stream that are no list")
    return items


def decode_item(item: Any) -> Any:
    """The item itself. Raises what unpickling raises."""
    if type(item) is bytearray:
        return _loads(item)
    if type(item) is EncodedItem:
        return _loads(item.body, buffers=item.buffers)
    return item
