"""Calls and results in the form that a pool and its workers exchange.

    the pool        pack_call, when it is submitted     ──▶ a worker   unpack_call, when it begins
    a worker        pack_result, when it has returned   ──▶ the pool   unpack_result

So later changes to a list, after `submit` or by the next call, don't affect this call. If a call or a result
cannot be pickled or unpickled, only this call fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launchpad.courier.buffers import copies
from launchpad.courier.codec import pickling
from launchpad.courier.codec.packing import Item, PackedItem, pack, unpack

Arguments = tuple[tuple[Any, ...], Mapping[str, Any]]
Call = Arguments | Item
"""The plain arguments if all are scalars, which are immutable; otherwise the packed ones."""

_SCALARS = pickling.SCALARS
# Bytes are excluded, because a packed result may be bytes.
_PLAIN_RESULTS = _SCALARS - {bytes}


def pack_call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
    """Pack the arguments of a call. Errors of pickling are raised."""
    if _SCALARS.issuperset(map(type, args)) and _SCALARS.issuperset(map(type, kwargs.values())):
        return args, kwargs
    body, views = pickling.encode_call(args, dict(kwargs))
    if views is None:
        # There is an iterator among the arguments. A pool has no streams, so pickle it if possible.
        return pack((args, kwargs), copy=True)
    return PackedItem(body, *copies(views)) if views else body


def unpack_call(call: Call) -> Arguments:
    """Return new copies of a call's arguments. Errors of unpickling are raised."""
    return call if type(call) is tuple else unpack(call)  # type: ignore[arg-type]


def size_of(call: Call) -> int:
    """Return the approximate size in bytes of a call's arrays and texts."""
    if type(call) is not tuple:
        return len(call)
    args, kwargs = call
    values = (*args, *kwargs.values())
    return sum(len(value) for value in values if isinstance(value, bytes | str))


def pack_result(value: Any) -> Any:
    """Pack the result of a call. Errors of pickling are raised."""
    return value if type(value) in _PLAIN_RESULTS else pack(value, copy=True)


def unpack_result(result: Any) -> Any:
    """Return the value that was given to `pack_result`. Errors of unpickling are raised."""
    return result if type(result) in _PLAIN_RESULTS else unpack(result)
