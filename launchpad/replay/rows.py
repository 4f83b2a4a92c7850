"""Rows: the data of items as the server keeps it, in bytes that it never decodes.

    a row       (signature, columns)             signature: bytes, equal for rows that can be stacked
    a column    ((bytes, start, stop), …)        pieces of the bytes that writers have sent; items share them

A writer sends each step once, in segments. A segment is some consecutive steps, with one buffer for each
column. Items refer to steps by their numbers. A writer's window is the steps to which it may still refer.
"""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from launchpad.courier.buffers import allocate
from launchpad.replay.errors import UnknownSteps

_OUT_OF_BAND_FROM = 4 << 10
"""The size from which buffers are sent out of band. Courier would read a message with smaller ones twice."""
_COPIED_FROM = 256 << 10
"""Buffers of at least this size are copied. They may be in shared memory that the sender wants back."""


class StepBytes:
    """Bytes that several items may share. A saved table contains them once."""

    __slots__ = ("view",)

    def __init__(self, buffer: Any) -> None:
        view = memoryview(buffer)
        self.view = memoryview(bytearray(view)) if view.nbytes >= _COPIED_FROM else view


Column = tuple[tuple[StepBytes, int, int], ...]
Row = tuple[bytes, tuple[Column, ...]]
SentColumn = Any
"""A column as a client sends it: its bytes, or (column number, first step, stop) for steps sent earlier."""


class SentSteps(NamedTuple):
    """The steps of a writer from `first` to before `stop`."""

    first: int
    stop: int
    columns: list[StepBytes]


class Window:
    """The steps of one writer to which its next items may refer."""

    def __init__(self) -> None:
        self._segments: list[SentSteps] = []

    def add(self, first: int, stop: int, buffers: Iterable[Any]) -> None:
        """Add steps. A writer sends steps again if it doesn't know whether they arrived."""
        self._segments.append(SentSteps(first, stop, [StepBytes(buffer) for buffer in buffers]))

    def forget(self, before: int) -> None:
        """Forget the steps before this one, to which the writer no longer refers."""
        self._segments = [segment for segment in self._segments if segment.stop > before]

    def column(self, number: int, first: int, stop: int) -> Column:
        """Return the bytes of one column of some steps. Raise UnknownSteps if a step is not here."""
        for segment in reversed(self._segments):
            if segment.first <= first and stop <= segment.stop:
                data = segment.columns[number]
                size = data.view.nbytes // (segment.stop - segment.first)
                return ((data, (first - segment.first) * size, (stop - segment.first) * size),)
        pieces = []
        at = first
        while at < stop:
            for segment in reversed(self._segments):
                if segment.first <= at < segment.stop:
                    break
            else:
                raise UnknownSteps(f"step {at} is not here, or not any more")
            data = segment.columns[number]
            end = min(stop, segment.stop)
            size = data.view.nbytes // (segment.stop - segment.first)
            pieces.append((data, (at - segment.first) * size, (end - segment.first) * size))
            at = end
        return tuple(pieces)

    def row(self, signature: bytes, columns: Iterable[SentColumn]) -> Row:
        """Return the server's form of a row that a client has sent."""
        row: list[Column] = []
        for column in columns:
            if isinstance(column, tuple):
                row.append(self.column(*column))
            else:
                data = StepBytes(column)
                row.append(((data, 0, data.view.nbytes),))
        return signature, tuple(row)


def pack(rows: Iterable[Row]) -> dict[str, Any]:
    """Return rows in a form that is quick to pickle. Bytes that rows share occur in it only once."""
    signatures: dict[bytes, int] = {}
    numbers: dict[int, int] = {}
    buffers: list[pickle.PickleBuffer] = []
    layout = array("q")
    for signature, columns in rows:
        layout.append(signatures.setdefault(signature, len(signatures)))
        layout.append(len(columns))
        for column in columns:
            layout.append(len(column))
            for data, start, stop in column:
                number = numbers.get(id(data))
                if number is None:
                    number = len(buffers)
                    numbers[id(data)] = number
                    buffers.append(pickle.PickleBuffer(data.view))
                layout.extend((number, start, stop))
    return {"signatures": [*signatures], "buffers": buffers, "layout": layout}


def unpack(packed: dict[str, Any]) -> list[Row]:
    """Return the rows that were given to `pack`."""
    buffers = [StepBytes(buffer) for buffer in packed["buffers"]]
    numbers = iter(packed["layout"])
    rows: list[Row] = []
    for signature in numbers:
        columns: list[Column] = []
        n_columns = next(numbers)
        for _ in range(n_columns):
            n_pieces = next(numbers)
            pieces = [
                (buffers[next(numbers)], next(numbers), next(numbers)) for _ in range(n_pieces)
            ]
            columns.append(tuple(pieces))
        rows.append((packed["signatures"][signature], tuple(columns)))
    return rows


def join(rows: Sequence[Row]) -> list[pickle.PickleBuffer | bytearray]:
    """Join rows with the same signature. Return, for each column, the bytes of all rows in order."""
    joined_columns: list[pickle.PickleBuffer | bytearray] = []
    for columns in zip(*(row[1] for row in rows), strict=True):
        length = sum([stop - start for _, start, stop in columns[0]])
        size = length * len(rows)
        if size < _OUT_OF_BAND_FROM:
            parts = [data.view[start:stop] for column in columns for data, start, stop in column]
            joined_columns.append(bytearray().join(parts))
            continue
        memory = allocate(size)
        at = 0
        for column in columns:
            for data, start, stop in column:
                end = at + stop - start
                memory[at:end] = data.view[start:stop]
                at = end
        joined_columns.append(pickle.PickleBuffer(memory))
    return joined_columns
