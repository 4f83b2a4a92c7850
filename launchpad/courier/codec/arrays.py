"""Pickling of numpy's arrays and scalars as a description (type of the elements, shape, order) and bytes.

Numpy by itself takes 8 µs to pickle one array, however small, and 5 µs to unpickle it. For each of several
arrays, it takes 3 and 2 µs. Here each array takes 1 and 1 µs. Arrays other than plain ones of numbers, text
or dates (objects, structured types, types with metadata, subclasses, masked arrays) are pickled as numpy does
it. An array arrives as with plain pickle: in C or Fortran order, with its byte order, read-only if it was
read-only and contiguous, and in memory of its own.

    up to `IN_BAND` bytes    in the stream: one more copy, but no buffer to describe, send and receive
    more                     out of band (PEP 574): not copied on the way out

    "<f4 3,4"      the description of a float32 array of this shape in C order
    ">i8 3,4 Fr"   Fortran order (F), read-only (r)

Streams name `array` and `scalar`, so `pickle.loads` alone can read them. Most of the remaining time goes into
looking up the function by its name, on both sides. So the stream of one array, or of a call with one array,
is written and read here, without pickle.
"""

from __future__ import annotations

import contextlib
import pickle
import struct
from collections.abc import Callable
from typing import Any

IN_BAND = 16 << 10

_MOST_KNOWN = 200  # descriptions in a cache; when it is full, it is emptied
# Bits of numpy's flags.
_WRITEABLE = 0x400
_C = 1
_F = 2
_LAYOUT = _WRITEABLE | _C | _F
# The description for a type of elements, a shape and a layout. It is empty for arrays that numpy must pickle.
_descriptions: dict[tuple[Any, tuple[int, ...], int], str] = {}
# For each description: ndarray, shape, type of the elements, order, and True if the array is writable.
_parsed: dict[str, tuple[Any, tuple[int, ...], Any, str, bool]] = {}

_loads = pickle.loads
_PickleBuffer = pickle.PickleBuffer

# A stream of ours consists of: the name of `array`; a size and the bytes, or their place among the buffers;
# an end.
START = b"\x80\x05c" + __name__.encode() + b"\narray\n"
_SIZE = struct.Struct("<I")
_BINBYTES = pickle.BINBYTES
_NEXT_BUFFER = pickle.NEXT_BUFFER
_AT_PLACE = len(START) + 1
_AT = _AT_PLACE + _SIZE.size
# An end is the description, a call of `array`, and the steps that leave the array itself or `(array,), {}`.
_CALL = pickle.TUPLE2 + pickle.REDUCE
ALONE = pickle.STOP
ONLY_ARGUMENT = pickle.TUPLE1 + pickle.EMPTY_DICT + pickle.TUPLE2 + pickle.STOP
# For each end: the description, and True if the array is the argument of a call.
_ends: dict[bytes, tuple[str, bool]] = {}
_made_ends: dict[tuple[str, bytes], bytes] = {}

ndarray: Any = None  # `numpy.ndarray` once numpy is imported


def reducers(numpy: Any) -> dict[type, Callable[[Any], Any]]:
    """Return functions that pickle numpy's arrays and scalars, by type."""
    global ndarray
    ndarray = numpy.ndarray
    kinds = numpy.bool_, numpy.integer, numpy.inexact
    numbers = {kind for kind in numpy.sctypeDict.values() if issubclass(kind, kinds)}
    return {numpy.ndarray: _reduce_array, **dict.fromkeys(numbers, _reduce_scalar)}


def encode(value: Any, end: bytes) -> tuple[bytes, list[memoryview]] | None:
    """Return the stream of an array and the buffers that the stream leaves out.

    `end` is `ALONE` for an array by itself, `ONLY_ARGUMENT` for a call with one array. Returns None for an
    array that pickle must encode.
    """
    description = describe(value)
    if not description:
        return None
    tail = _made_ends.get((description, end)) or _make_end(description, end)
    if value.nbytes > IN_BAND:
        return START + _NEXT_BUFFER + tail, [_memory_of(value).raw()]
    data = value.tobytes("A")
    return b"".join((START, _BINBYTES, _SIZE.pack(len(data)), data, tail)), []


def describe(value: Any) -> str:
    """Return the description of an array; empty if numpy must pickle it."""
    dtype = value.dtype
    # Types that differ only in their metadata are equal, so they would have the same key.
    if dtype.metadata is not None:
        return ""
    key = dtype, value.shape, value.flags.num & _LAYOUT
    description = _descriptions.get(key)
    return _describe(*key) if description is None else description


def load_stream(stream: bytes, buffers: Any) -> Any:
    """Load a stream that begins with `START`, as `pickle.loads` does. Streams of `encode` load faster."""
    if buffers:
        at = _AT_PLACE
        data = buffers[0]
    else:
        at = _AT + _SIZE.unpack_from(stream, _AT_PLACE)[0]
        data = stream[_AT:at]
    end = stream[at:]
    description_and_kind = _ends.get(end)
    if description_and_kind is None:
        _learn(end)
        return _loads(stream, buffers=buffers)
    description, is_argument = description_and_kind
    value = array(data, description)
    return ((value,), {}) if is_argument else value


def array(data: Any, description: str) -> Any:
    """Return the array over the memory of `data`, or over a copy if it is writable and `data` is `bytes`."""
    make, shape, dtype, order, is_writable = parse(description)
    if not is_writable:
        data = memoryview(data).toreadonly()
    elif type(data) is bytes:
        data = bytearray(data)
    return make(shape, dtype, data, 0, None, order)


def scalar(data: bytes, description: str) -> Any:
    """Return the scalar that these bytes hold."""
    return array(data, description)[()]


def _reduce_array(value: Any) -> Any:
    description = describe(value)
    if not description:
        return value.__reduce_ex__(5)
    if value.nbytes <= IN_BAND:
        return array, (value.tobytes("A"), description)
    return array, (_memory_of(value), description)


def _memory_of(value: Any) -> pickle.PickleBuffer:
    """Return the memory of an array, or of a copy if the array is not contiguous."""
    if not value.flags.forc:
        value = value.copy("C")
    if value.dtype.kind in "Mm":  # arrays of dates and times have no buffer of their own
        value = value.view("i8")
    return _PickleBuffer(value)


def _reduce_scalar(value: Any) -> Any:
    return scalar, (value.tobytes(), value.dtype.str + " ")


def _describe(dtype: Any, shape: tuple[int, ...], layout: int) -> str:
    """Build and cache the description of an array; empty if numpy must pickle it."""
    description = ""
    if dtype.kind in "biufcSUMm" and dtype.isbuiltin != 2:  # 2 means a type of another library
        order = "F" if layout & (_C | _F) == _F else ""
        is_copied = not layout & (_C | _F)
        access = "" if layout & _WRITEABLE or is_copied else "r"
        description = f"{dtype.str} {','.join(map(str, shape))} {order}{access}".strip(" ")
        description += "" if shape or order or access else " "
    _remember(_descriptions, (dtype, shape, layout), description)
    return description


def parse(description: str) -> tuple[Any, tuple[int, ...], Any, str, bool]:
    """Parse a description: ndarray, shape, type of the elements, order, and True if writable."""
    return _parsed.get(description) or _parse(description)


def _parse(description: str) -> tuple[Any, tuple[int, ...], Any, str, bool]:
    import numpy as np

    name, numbers, *options = description.split(" ")
    flags = options[0] if options else ""
    shape = tuple(map(int, numbers.split(","))) if numbers else ()
    parsed = np.ndarray, shape, np.dtype(name), "F" if "F" in flags else "C", "r" not in flags
    _remember(_parsed, description, parsed)
    return parsed


def _make_end(description: str, last: bytes) -> bytes:
    text = description.encode()
    end = pickle.BINUNICODE + _SIZE.pack(len(text)) + text + _CALL + last
    _parse(description)
    _remember(_ends, end, (description, last == ONLY_ARGUMENT))
    _remember(_made_ends, (description, last), end)
    return end


def _learn(end: bytes) -> None:
    """Make `load_stream` recognize streams with this end, if `encode` could have written it."""
    for last in (ONLY_ARGUMENT, ALONE):
        if end.endswith(_CALL + last):
            text = end[1 + _SIZE.size : -len(_CALL + last)]
            with contextlib.suppress(UnicodeDecodeError, ValueError, TypeError):
                if _make_end(text.decode(), last) == end:
                    return


def _remember(cache: dict[Any, Any], key: Any, value: Any) -> None:
    if len(cache) >= _MOST_KNOWN:
        cache.clear()
    cache[key] = value
