"""Arguments that are streams: they stay with the caller, and their items follow the call.

    caller: take_out ──▶ pickled with a Placeholder each ──▶ server: unpickled as ArgumentStreams

When a Placeholder is unpickled, it asks the reader of the call for the stream of its number. So neither the
method nor the code that calls it has to know of placeholders.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple

from launchpad.courier.codec.iterators import is_stream
from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol import framing

_COUNT = struct.Struct("<H")

#: Set while a call that has streams among its arguments is unpickled.
opening: ContextVar[Callable[[int], Any] | None] = ContextVar("courier_opening", default=None)


class Placeholder:
    """A stand-in, among pickled arguments, for the stream of this number."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return open_argument, (self._number,)


def open_argument(number: int) -> Any:
    """Return the iterator over an argument of the call that is being unpickled."""
    find = opening.get()
    if find is None:
        raise ProtocolError("an argument that is a stream, in a call that has none")
    return find(number)


class Arguments(NamedTuple):
    """The arguments of a call with a placeholder for each stream, and the streams in order of number."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    streams: list[Any]


def take_out(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """Replace each stream among the arguments by a placeholder.

    Numbers begin at 1. An iterator that is given twice is one stream.
    """
    streams: list[Any] = []

    def replace(value: Any) -> Any:
        if not is_stream(value):
            return value
        for number, stream in enumerate(streams, 1):
            if stream is value:
                return Placeholder(number)
        streams.append(value)
        return Placeholder(len(streams))

    # Positional arguments come first, because the order decides the numbers.
    args = tuple(replace(value) for value in args)
    kwargs = {name: replace(value) for name, value in kwargs.items()}
    return Arguments(args, kwargs, streams)


def encode_count(n: int) -> bytes:
    """Return the header of a call that has `n` streams among its arguments."""
    return framing.encode_headers({framing.ARGUMENT_STREAMS: _COUNT.pack(n)})


def decode_count(header: bytes) -> int:
    """Return the number of streams among the arguments of the call with this header."""
    if len(header) != _COUNT.size:
        raise ProtocolError("a count of streams that is not a number")
    return int(_COUNT.unpack(header)[0])
