"""EpisodeWriter: the base class of writers that make items automatically."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from launchpad.replay.trajectory_writer import TrajectoryWriter

if TYPE_CHECKING:
    from launchpad.replay.item_sender import ItemServer


class EpisodeWriter:
    """A writer that makes items from the steps of its TrajectoryWriter. A subclass chooses the steps."""

    def __init__(self, client: ItemServer, max_sequence_length: int, items_per_call: int) -> None:
        self._writer = TrajectoryWriter(client, max_sequence_length, items_per_call)

    def flush(self, timeout_s: float | None = None) -> None:
        """Send all unsent items, and return once all items are in their tables. See TrajectoryWriter."""
        self._writer.flush(timeout_s)

    def close(self) -> None:
        """Send all unsent items, and let the server forget the steps."""
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._writer.__exit__(kind, error, traceback)
