"""Frames that carry several small calls, which waited to be sent at the same time, or several answers.

    CALLS      calls of one method, without deadline or headers
    RESULTS    the return values of some of these calls

    offset  size     field of the body
    ──────  ───────  ───────────────────────────────────────────────────────────────
         0  8 × n    the ids of the calls; n is in the header, where other frames have their call id
     8 × n           the pickle of a list: the positional arguments of each call, or its return value

All arguments and values in these frames are small scalars, so that they can neither change nor fail while
they wait. Pickling and unpickling them together costs a tenth of doing so one by one.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from typing import Any

from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol import framing

MOST = 128  # calls in a frame
MOST_ARGS = 4
LIMIT = 1 << 20  # bytes; a peer that takes this much at once takes any of these frames
_LENGTH = 64
_LARGEST_INT = 1 << 63
_UNSIZED = frozenset({float, bool, type(None)})
_SIZED = frozenset({str, bytes})

_dumps = pickle.dumps
_loads = pickle.loads


def is_small(value: object) -> bool:
    """Return True if the value is a small scalar, so that it may share a frame."""
    kind = type(value)
    if kind is int:
        return -_LARGEST_INT < value < _LARGEST_INT  # type: ignore[operator]
    return kind in _UNSIZED or (kind in _SIZED and len(value) <= _LENGTH)  # type: ignore[arg-type]


def encode(kind: int, method: bytes, ids: Sequence[int], values: Sequence[object]) -> bytes:
    """Encode calls of one method, or their results, as one frame."""
    n = len(ids)
    body = struct.pack(f"<{n}Q", *ids) + _dumps(values, 5)
    return framing.HEADER.pack(framing.MAGIC, kind, len(method), 0, n, len(body), 0) + method + body


def decode(frame: framing.Fields) -> tuple[Sequence[int], list[Any]]:
    """Return ids and values. Raises ProtocolError if they cannot be read or don't match."""
    _, n, _, body, *_ = frame
    try:
        ids = struct.unpack_from(f"<{n}Q", body) if n <= MOST else ()
        values = _loads(memoryview(body)[8 * n :])
    except Exception as error:
        raise ProtocolError(f"calls that share a frame, which cannot be read: {error!r}") from error
    if type(values) is not list or len(values) != len(ids):
        raise ProtocolError(f"a frame of {n} calls, with {len(ids)} ids, that does not fit")
    return ids, values
