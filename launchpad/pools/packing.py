"""Calls and results in the form that a pool and its workers exchange.

    the pool        pack_call, when it is submitted     ──▶ a worker   unpack_call, when it begins
    a worker        pack_result, when it has returned   ──▶ the pool   unpack_result

So a call is not affected if an argument, such as a list, changes after `submit`, or if another call changes
it. If a call or a result cannot be pickled or unpickled, only this call fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launchpad.courier.buffers import copies
from launchpad.courier.codec import pickling
from launchpad.courier.codec.packing import Item, PackedItem, pack, unpack

Arguments = tuple[tuple[Any, ...], Mapping[str, Any]]
Call = Arguments | Item
"""The plain arguments if all of them are scalars, which are immutable. Otherwise the packed arguments."""

_SCALARS = pickling.SCALARS
# Bytes are excluded, because a packed result may be bytes.
_PLAIN_RESULTS = _SCALARS - {bytes}


def pack_call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
    """Pack the arguments of a call. Errors of pickling are raised."""
    if _SCALARS.issuperset(map(type, args)) and _SCALARS.issuperset(map(type, kwargs.values())):
        return args, kwargs
    body, views = pickling.encode_call(args, dict(kwargs))
    if views is None:
        # One of the arguments is an iterator. A pool cannot send it as a stream, so try to pickle it.
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
