"""Lists, tuples and dicts of arrays: the arrays apart from what they stand in.

Most of what pickle does for such a value, it does for each of the arrays. Here it is given a skeleton, in
which a hole stands for each; their bytes follow in one piece, over which they are made again:

    [a, {"b": b}]    the pickle of [○, {"b": ○}] · "<f4 84;<f4 3,4" · the bytes of a and b

For pickle is whatever has other classes in it, arrays that are large or no plain ones, or a part that stands
in it twice. A stream calls `load` with all this, so that nothing but `pickle.loads` is needed to read it.
"""

from __future__ import annotations

import pickle
import struct
from itertools import islice
from typing import Any

from launchpad.courier.codec import arrays

MOST_BYTES = 64 << 10  # of all arrays: from here on they are better left out of the stream
_MOST_VALUES = 500  # scalars do not count, but lists of so many are for pickle

_LOOKED_AT = 8
_DEPTH = 4

_ALIGNMENT = 16
_PADDING = [bytes(-n % _ALIGNMENT) for n in range(_ALIGNMENT)]
SCALARS = frozenset({int, float, bool, str, bytes, type(None)})  # no buffers, no classes
NESTS = frozenset({list, tuple, dict})
# Pickled as the place of a buffer. What is put there when it is unpickled is not looked at.
_HOLE = pickle.PickleBuffer(bytearray())

_SIZE = struct.Struct("<I")
_SIZES = struct.Struct("<II")
START = b"\x80\x05c" + __name__.encode() + b"\nload\nB"
_END = pickle.TUPLE1 + pickle.REDUCE + pickle.STOP
_AT = len(START) + _SIZE.size
_dumps = pickle.dumps
_loads = pickle.loads
_describe = arrays.describe
_leave_out: Any = [].count  # a function in C that returns 0

_MOST_KNOWN = 200
_Place = tuple[Any, tuple[int, ...], Any, int, str]
_places: dict[bytes, tuple[list[_Place], list[int]]] = {}  # and which are read-only


class _ForPickle(Exception):
    """It has something in it that is for pickle."""


def encode(value: Any) -> bytes | None:
    """The stream of a list, tuple or dict with arrays in it; None if it is for pickle."""
    if not _has_array(value, _DEPTH):
        return None
    found: list[Any] = []
    try:
        skeleton = _without_arrays(value, found, set())
    except (_ForPickle, RecursionError):
        return None
    if not found or len(set(map(id, found))) < len(found):
        return None
    if sum([array.nbytes for array in found]) > MOST_BYTES:
        return None
    pieces: list[bytes] = []
    descriptions: list[str] = []
    n_bytes = 0
    for array in found:
        description = _describe(array)
        if not description:
            return None
        descriptions.append(description)
        data = array.tobytes("A")
        pieces.append(data)
        n_bytes += len(data)
        n = len(data) % _ALIGNMENT
        if n:
            pieces.append(_PADDING[n])
            n_bytes += len(_PADDING[n])
    body = _dumps(skeleton, 5, buffer_callback=_leave_out)
    places = ";".join(descriptions).encode()
    n_all = _SIZES.size + len(body) + len(places) + n_bytes
    head = START + _SIZE.pack(n_all) + _SIZES.pack(len(body), len(places))
    return b"".join((head, body, places, *pieces, _END))


def load(data: bytes) -> Any:
    """The value whose skeleton, arrays and bytes these are."""
    return _load(data, 0, len(data))


def load_stream(stream: bytes) -> Any:
    """As `pickle.loads`, of a stream that begins with `START`."""
    return _load(stream, _AT, len(stream) - len(_END))


def _load(data: bytes, start: int, end: int) -> Any:
    n_body, n_places = _SIZES.unpack_from(data, start)
    body_at = start + _SIZES.size
    places_at = body_at + n_body
    at = places_at + n_places
    key = data[places_at:at]
    places, read_only = _places.get(key) or _parse(key)
    memory = bytearray(memoryview(data)[at:end])
    made = [
        make(shape, dtype, memory, offset, None, order)
        for make, shape, dtype, offset, order in places
    ]
    for i in read_only:
        made[i].flags.writeable = False
    return _loads(data[body_at:places_at], buffers=made)


def _has_array(value: Any, depth: int) -> bool:
    """Among the first values: one that has none there is not walked through in vain."""
    for each in islice(value.values() if type(value) is dict else value, _LOOKED_AT):
        kind = type(each)
        if kind is arrays.ndarray:
            return True
        if depth and kind in NESTS and each and _has_array(each, depth - 1):
            return True
    return False


def _without_arrays(value: Any, found: list[Any], seen: set[int]) -> Any:
    """Return the value with a hole for each array, and append the arrays to `found`."""
    kind = type(value)
    if kind is arrays.ndarray:
        found.append(value)
        return _HOLE
    if kind not in NESTS:
        raise _ForPickle
    if len(seen) + len(found) + len(value) > _MOST_VALUES:
        raise _ForPickle
    values = value
    if kind is dict:
        if not SCALARS.issuperset(map(type, value)):
            raise _ForPickle
        values = value.values()
    kinds = set(map(type, values))
    if kinds <= SCALARS:
        return value
    if id(value) in seen:
        raise _ForPickle
    seen.add(id(value))
    if len(kinds) == 1 and arrays.ndarray in kinds:
        found.extend(values)
        rest = [_HOLE] * len(value)
    else:
        rest = [
            each if type(each) in SCALARS else _without_arrays(each, found, seen) for each in values
        ]
    if kind is dict:
        return dict(zip(value, rest, strict=True))
    return rest if kind is list else tuple(rest)


def _parse(key: bytes) -> tuple[list[_Place], list[int]]:
    places: list[_Place] = []
    read_only = []
    offset = 0
    for i, description in enumerate(key.decode().split(";")):
        make, shape, dtype, order, is_writable = arrays.parse(description)
        places.append((make, shape, dtype, offset, order))
        if not is_writable:
            read_only.append(i)
        n_bytes = dtype.itemsize
        for n in shape:
            n_bytes *= n
        offset += -(-n_bytes // _ALIGNMENT) * _ALIGNMENT
    if len(_places) >= _MOST_KNOWN:
        _places.clear()
    _places[key] = places, read_only
    return places, read_only
