"""Calls and results as a pool and its workers pass them on.

    the pool        pack_call, when it is submitted     ──▶ a worker   unpack_call, when it begins
    a worker        pack_result, when it has returned   ──▶ the pool   unpack_result

So a list that is changed after `submit`, or by the next call, stays as it was in this one. And a call or a
result that cannot be pickled, or unpickled, fails alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launchpad.courier.buffers import copies
from launchpad.courier.codec import pickling
from launchpad.courier.codec.packing import Item, PackedItem, pack, unpack

Arguments = tuple[tuple[Any, ...], Mapping[str, Any]]
Call = Arguments | Item
"""The arguments as they are if all are scalars, which cannot be changed; else packed."""

_SCALARS = pickling.SCALARS
_PLAIN_RESULTS = _SCALARS - {bytes}  # bytes are a packed one


def pack_call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
    """A call with these arguments. Raises what pickling raises."""
    if _SCALARS.issuperset(map(type, args)) and _SCALARS.issuperset(map(type, kwargs.values())):
        return args, kwargs
    body, views = pickling.encode_call(args, dict(kwargs))
    if views is None:  # with an iterator, which is pickled if it can be: a pool has no streams
        return pack((args, kwargs), copy=True)
    return PackedItem(body, *copies(views)) if views else body


def unpack_call(call: Call) -> Arguments:
    """Its arguments, made anew. Raises what unpickling raises."""
    return call if type(call) is tuple else unpack(call)  # type: ignore[arg-type]


def size_of(call: Call) -> int:
    """The bytes of its arrays and texts, roughly."""
    if type(call) is not tuple:
        return len(call)
    args, kwargs = call
    values = (*args, *kwargs.values())
    return sum(len(value) for value in values if isinstance(value, bytes | str))


def pack_result(value: Any) -> Any:
    """What a call has returned. Raises what pickling raises."""
    return value if type(value) in _PLAIN_RESULTS else pack(value, copy=True)


def unpack_result(result: Any) -> Any:
    """What `pack_result` was given. Raises what unpickling raises."""
    return result if type(result) in _PLAIN_RESULTS else unpack(result)
