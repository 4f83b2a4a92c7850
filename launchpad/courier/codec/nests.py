"""Lists, tuples and dicts of arrays, encoded with the arrays separate from their containers.

Pickle spends most of its time for such a value on the arrays, one by one. Here pickle gets only a skeleton of
the value, with a hole for each array. The bytes of all arrays follow in one piece, and the receiver makes the
arrays over this memory:

    [a, {"b": b}]    the pickle of [○, {"b": ○}] · "<f4 84;<f4 3,4" · the bytes of a and b

Pickle encodes a value by itself if the value contains other classes, large arrays, arrays that are not
plain, or the same part twice. A stream calls `load` with all of this, so `pickle.loads` alone can read it.
"""

from __future__ import annotations

import pickle
import struct
from itertools import islice
from typing import Any

from launchpad.courier.codec import arrays

MOST_BYTES = 64 << 10  # of all arrays together; larger arrays are better left out of the stream
# The most containers and arrays in a value, plus the items of any one container. Pickle encodes values with
# more.
_MOST_VALUES = 500

# The search for the first array looks at this many items of each container, and this deep.
_LOOKED_AT = 8
_DEPTH = 4

_ALIGNMENT = 16
_PADDING = [bytes(-n % _ALIGNMENT) for n in range(_ALIGNMENT)]
SCALARS = frozenset({int, float, bool, str, bytes, type(None)})  # no buffers, no classes
NESTS = frozenset({list, tuple, dict})
# The hole is pickled as the place of a buffer. `pickle.loads` puts any object there without looking at it.
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
# For the descriptions in a stream: the places of the arrays, and the indexes of the read-only arrays.
_places: dict[bytes, tuple[list[_Place], list[int]]] = {}


class _ForPickle(Exception):
    """The value contains something that pickle must encode."""


def encode(value: Any) -> bytes | None:
    """Return the stream of a list, tuple or dict with arrays in it; None if pickle must encode it."""
    if not _has_array(value, _DEPTH):
        return None
    found_arrays: list[Any] = []
    try:
        skeleton = _without_arrays(value, found_arrays, set())
    except (_ForPickle, RecursionError):
        return None
    if not found_arrays or len(set(map(id, found_arrays))) < len(found_arrays):
        return None
    if sum([array.nbytes for array in found_arrays]) > MOST_BYTES:
        return None
    pieces: list[bytes] = []
    descriptions: list[str] = []
    n_bytes = 0
    for array in found_arrays:
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
    """Return the value that `encode` was given; `data` has its skeleton, descriptions and bytes."""
    return _load(data, 0, len(data))


def load_stream(stream: bytes) -> Any:
    """Load a stream that begins with `START`, as `pickle.loads` does."""
    return _load(stream, _AT, len(stream) - len(_END))


def _load(data: bytes, start: int, end: int) -> Any:
    n_body, n_places = _SIZES.unpack_from(data, start)
    body_at = start + _SIZES.size
    places_at = body_at + n_body
    at = places_at + n_places
    key = data[places_at:at]
    places, read_only = _places.get(key) or _parse(key)
    memory = bytearray(memoryview(data)[at:end])
    loaded_arrays = [
        make(shape, dtype, memory, offset, None, order)
        for make, shape, dtype, offset, order in places
    ]
    for i in read_only:
        loaded_arrays[i].flags.writeable = False
    return _loads(data[body_at:places_at], buffers=loaded_arrays)


def _has_array(value: Any, depth: int) -> bool:
    """Return True if there is an array among the first values.

    A value whose first arrays come later is left to pickle: looking through all values would cost too much.
    """
    for item in islice(value.values() if type(value) is dict else value, _LOOKED_AT):
        kind = type(item)
        if kind is arrays.ndarray:
            return True
        if depth and kind in NESTS and item and _has_array(item, depth - 1):
            return True
    return False


def _without_arrays(value: Any, found_arrays: list[Any], visited: set[int]) -> Any:
    """Return the value with a hole for each array, and append the arrays to `found_arrays`."""
    kind = type(value)
    if kind is arrays.ndarray:
        found_arrays.append(value)
        return _HOLE
    if kind not in NESTS:
        raise _ForPickle
    if len(visited) + len(found_arrays) + len(value) > _MOST_VALUES:
        raise _ForPickle
    values = value
    if kind is dict:
        if not SCALARS.issuperset(map(type, value)):
            raise _ForPickle
        values = value.values()
    kinds = set(map(type, values))
    if kinds <= SCALARS:
        return value
    if id(value) in visited:
        raise _ForPickle
    visited.add(id(value))
    if len(kinds) == 1 and arrays.ndarray in kinds:
        found_arrays.extend(values)
        replaced = [_HOLE] * len(value)
    else:
        replaced = [
            item if type(item) in SCALARS else _without_arrays(item, found_arrays, visited)
            for item in values
        ]
    if kind is dict:
        return dict(zip(value, replaced, strict=True))
    return replaced if kind is list else tuple(replaced)


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
