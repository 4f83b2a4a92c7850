"""StepChunks: the last steps of a writer, until they are sent. Needs numpy.

    chunk   steps 0 … 79      one array for each column, with a row for each step
    chunk   steps 80 … 159
    chunk   steps 160 …       new steps are written into this one

If no step of a chunk is needed any more, the next chunk uses its memory, because fresh memory costs more time
than copying steps into it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from launchpad.courier.trees import Spec
from launchpad.replay.columns import buffer_of


class StepChunk(NamedTuple):
    """Room for the steps from `first` to before `stop`. The last of these steps may not be there yet."""

    first: int
    stop: int
    columns: list[Any]


class StepChunks:
    """The chunks of a writer's consecutive steps, by the numbers of the steps."""

    def __init__(self) -> None:
        self._chunks: deque[StepChunk] = deque()

    def begin(self, specs: Sequence[Spec], first: int, stop: int, keep_from: float) -> list[Any]:
        """Start a chunk for these steps, and return its columns. Steps before `keep_from` may be dropped.

        All chunks have the same length and the same columns.
        """
        import numpy as np

        columns = None
        while self._chunks and self._chunks[0].stop <= keep_from:
            columns = self._chunks.popleft().columns
        if columns is None:
            columns = [np.empty((stop - first, *shape), dtype) for dtype, shape in specs]
        self._chunks.append(StepChunk(first, stop, columns))
        return columns

    def rows(self, column: int, first: int, stop: int) -> Any:
        """Return one column of these steps, as a view if they are in one chunk."""
        import numpy as np

        parts = [part.columns[column] for part in self._parts(first, stop)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def segments(self, first: int, stop: int) -> list[tuple[int, int, list[Any]]]:
        """Return these steps in the form to send: first, stop, and a buffer for each column."""
        return [
            (part.first, part.stop, [*map(buffer_of, part.columns)])
            for part in self._parts(first, stop)
        ]

    def _parts(self, first: int, stop: int) -> list[StepChunk]:
        """Return these steps as a list of chunks, with a view of each chunk that has some of them."""
        parts = []
        for chunk in self._chunks:
            begin = max(first, chunk.first)
            end = min(stop, chunk.stop)
            if begin < end:
                rows = slice(begin - chunk.first, end - chunk.first)
                parts.append(StepChunk(begin, end, [column[rows] for column in chunk.columns]))
        return parts
