"""The frames on an ssh connection: a length of 8 bytes, and then that many bytes."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

HELLO = "launchpad-node "
"""The beginning of the line with which a host begins. What comes before it, the user's shell has printed."""

_LENGTH_BYTES = 8


def frame(content: bytes) -> bytes:
    """Return a frame with this content."""
    return len(content).to_bytes(_LENGTH_BYTES, "big") + content


def pickled(message: Any) -> bytes:
    """Return a frame with a message."""
    return frame(pickle.dumps(message, protocol=5))


async def read_pickled(reader: asyncio.StreamReader) -> Any:
    """Return the next message. Raise EOFError if the connection has ended."""
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
        return pickle.loads(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, OSError):
        raise EOFError from None
