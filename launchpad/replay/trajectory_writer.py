"""TrajectoryWriter: a writer of an episode's steps, and of items made from them. Needs numpy.

    append   ──▶  s0 s1 s2 s3 s4 s5 s6 …          one array for each column; the last max_sequence_length stay
    create_item(num_steps=4)  [s0 … s3]
    create_item(num_steps=4)        [s2 … s5]      s2, s3 are at the server already: only s4, s5 are sent

The server and the writer refer to sent steps by their numbers. A restarted server doesn't have the steps any
more. In this case it raises UnknownSteps, and the writer sends them again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

from launchpad.courier import trees
from launchpad.courier.checks import is_whole
from launchpad.courier.trees import Spec, Structure
from launchpad.replay import columns
from launchpad.replay.columns import Signature
from launchpad.replay.item_sender import ItemSender, SentItem
from launchpad.replay.step_chunks import StepChunks

if TYPE_CHECKING:
    from launchpad.replay.item_sender import ItemServer


class StepRange:
    """A range of steps of one column, as a leaf of a trajectory.

    If `is_one` is True, it is a single step without an axis for time.
    """

    def __init__(
        self, writer: TrajectoryWriter, column: int, first: int, stop: int, is_one: bool
    ) -> None:
        self.writer = writer
        self.column = column
        self.first = first
        self.stop = stop
        self.is_one = is_one
        # Raise now, and not later, if the writer doesn't keep the steps any more.
        writer.rows_of(column, first, stop)

    def numpy(self) -> Any:
        """Return a copy of the content as an array."""
        rows = self.writer.rows_of(self.column, self.first, self.stop)
        return (rows[0] if self.is_one else rows).copy()


class ColumnHistory:
    """The steps of one column in this episode. Index it like a list: `[-1]`, `[-5:]`."""

    def __init__(self, writer: TrajectoryWriter, column: int) -> None:
        self.writer = writer
        self.column = column

    def __getitem__(self, index: int | slice) -> StepRange:
        first, stop = self.writer.episode
        n = stop - first
        if isinstance(index, slice):
            begin, end, stride = index.indices(n)
            if stride != 1 or end <= begin:
                raise IndexError(
                    f"{index} of {n} steps: expected one step or more, without a stride"
                )
        else:
            begin = index + n if index < 0 else index
            end = begin + 1
            if not 0 <= begin < n:
                raise IndexError(f"step {index} of an episode of {n}")
        is_one = not isinstance(index, slice)
        return StepRange(self.writer, self.column, first + begin, first + end, is_one)

    def __len__(self) -> int:
        first, stop = self.writer.episode
        return stop - first


class TrajectoryWriter:
    """A writer that appends steps, and makes items of them. Each step is sent once, even if items share it.

    Example:
        with replay.trajectory_writer(max_sequence_length=20) as writer:
          for step in episode:
            writer.append({"observation": step.observation, "action": step.action})
            if writer.episode_steps >= 20:
              writer.create_item("sequences", priority=1.0, num_steps=20)
          writer.end_episode()

    All steps must have the structure, dtypes and shapes of the first one. `append` copies the step, so an
    environment may reuse its arrays. Not thread-safe.

    Args:
        client: The client of the node.
        max_sequence_length: The number of last steps to keep. Items can contain only these steps.
        items_per_call: The number of items to collect before they are sent. `flush` sends them earlier.

    Raises:
        ValueError: `max_sequence_length` or `items_per_call` is less than 1.
    """

    def __init__(
        self, client: ItemServer, max_sequence_length: int, items_per_call: int = 1
    ) -> None:
        if not (is_whole(max_sequence_length, at_least=1) and is_whole(items_per_call, at_least=1)):
            raise ValueError(
                "expected whole numbers of 1 or more for max_sequence_length and items_per_call, got"
                f" {max_sequence_length!r} and {items_per_call!r}"
            )
        self._client = client
        self._length = max_sequence_length
        self._structure: Structure = None
        self._specs: list[Spec] = []
        # The signature of an item, by its number of steps.
        self._signatures: dict[int, bytes] = {}
        self._chunks = StepChunks()
        self._chunk_length = 0
        # New steps go into the last chunk. The next two attributes are the step after that chunk's end, and
        # its columns.
        self._chunk_stop = 0
        self._columns: list[Any] = []
        self._next = 0
        self._episode_first = 0
        self._keys: tuple[Any, ...] | None = None
        # For each value of a flat dict: its column, type, shape and dtype.
        self._kinds: list[tuple[int, Any, Any, Any]] = []
        self._quick: list[tuple[Any, Any, Any, Any]] = []
        self._sender = ItemSender(client, items_per_call, self._chunks)

    @property
    def episode(self) -> tuple[int, int]:
        """The number of this episode's first step, and the number that the next step will get."""
        return self._episode_first, self._next

    @property
    def episode_steps(self) -> int:
        """The number of steps in this episode so far."""
        return self._next - self._episode_first

    @property
    def history(self) -> Any:
        """The columns of this episode's steps, in the structure of a step.

        Build trajectories from it, for example `history["reward"][-5:]`.

        Raises:
            RuntimeError: the writer has no step yet.
        """
        if not self._specs:
            raise RuntimeError("there is no history before the first step: call append() first")
        leaves: Iterator[Any] = (ColumnHistory(self, column) for column in range(len(self._specs)))
        return trees.unflatten(self._structure, leaves)

    def append(self, step: Any) -> None:
        """Append a step, a structure of arrays and numbers.

        Raises:
            ValueError: the step differs from the first one; the message says where.
            TypeError: a leaf is not an array or a number.
        """
        if self._next == self._chunk_stop and self._specs:
            self._begin_chunk()
        at = self._next - self._chunk_stop + self._chunk_length
        if type(step) is dict and tuple(step) == self._keys:
            values: Any = step.values()
            for (column, kind, shape, dtype), value in zip(self._quick, values, strict=True):
                if type(value) is not kind or (
                    dtype is not None and (value.shape != shape or value.dtype is not dtype)
                ):
                    break
                column[at] = value
            else:
                self._next += 1
                return
        arrays, structure = columns.arrays_of(step)
        specs = [trees.spec_of(array) for array in arrays]
        if not self._specs:
            self._learn(step, arrays, structure, specs)
        elif specs != self._specs or (
            structure != self._structure
            and trees.without_order(structure) != trees.without_order(self._structure)
        ):
            paths = [*trees.paths(structure)]
            pairs = zip(paths, self._specs, specs, strict=False)
            differ = [f"{path}: {new} after {old}" for path, old, new in pairs if new != old]
            raise ValueError(
                "a step is not like the first one of its writer: "
                + ("; ".join(differ) or f"{paths} after {[*trees.paths(self._structure)]}")
            )
        for column, array in zip(self._columns, arrays, strict=True):
            column[at] = array
        self._next += 1

    def create_item(
        self, table: str, priority: float, *, num_steps: int | None = None, trajectory: Any = None
    ) -> None:
        """Make an item of the last `num_steps` steps or of a `trajectory`, and send it.

        Unlike `flush` and `end_episode`, this does not wait until the item is in its table. It only waits if
        several items already wait for the table's rate limiter. If a table refuses an item, one of the next
        calls raises the error. Only the refused item is dropped. All other items are sent, including the item
        of the call that raises.

        Example:
            history = writer.history
            writer.create_item("pairs", 1.0, trajectory={
              "before": history["observation"][-2],      # one step
              "rewards": history["reward"][-5:],         # several, with an axis for time
              "total": total,                            # an array of its own
            })

        Raises:
            ValueError: the episode has fewer steps, or the writer doesn't keep them any more; the trajectory
                has steps of another writer or of an earlier episode; or the priority is NaN.
        """
        self._make_item(table, priority, num_steps=num_steps, trajectory=trajectory)
        self._raise_refusal()

    def _make_item(
        self, table: str, priority: float, *, num_steps: int | None = None, trajectory: Any = None
    ) -> None:
        """Make and send an item as `create_item` does, without raising errors of earlier items."""
        if (num_steps is None) == (trajectory is None):
            raise TypeError("create_item takes either num_steps or a trajectory")
        priority = float(priority)
        if math.isnan(priority):
            raise ValueError(
                f"an item for table {table!r} has no number as its priority: {priority!r}"
            )
        parts: list[Any]
        if num_steps is not None:
            if not 1 <= num_steps <= min(self.episode_steps, self._length):
                raise ValueError(
                    f"an item of {num_steps} steps: this episode has {self.episode_steps}, of which the last"
                    f" {self._length} are kept (max_sequence_length)"
                )
            first = self._next - num_steps
            stop = self._next
            parts = [(column, first, stop) for column in range(len(self._specs))]
            signature = self._signatures.get(num_steps)
            if signature is None:
                specs = [(dtype, (num_steps, *shape)) for dtype, shape in self._specs]
                signature = columns.encode_signature(Signature(self._structure, tuple(specs)))
                self._signatures[num_steps] = signature
        else:
            leaves: list[Any] = []
            parts = []
            specs = []
            structure = trees.flatten(trajectory, leaves)
            for leaf in leaves:
                if isinstance(leaf, StepRange | ColumnHistory) and leaf.writer is not self:
                    raise ValueError(
                        "a trajectory has steps of another writer's history, whose numbers mean nothing to"
                        " this one: give their content, history[…].numpy()"
                    )
                if isinstance(leaf, StepRange):
                    # Raise if the writer doesn't keep the steps any more.
                    self.rows_of(leaf.column, leaf.first, leaf.stop)
                    dtype, shape = self._specs[leaf.column]
                    shape = shape if leaf.is_one else (leaf.stop - leaf.first, *shape)
                    specs.append((dtype, shape))
                    parts.append((leaf.column, leaf.first, leaf.stop))
                elif isinstance(leaf, ColumnHistory):
                    raise TypeError("a column of the history has to be indexed: [-1], or [-5:]")
                else:
                    (array,), _ = columns.arrays_of(leaf)
                    specs.append(trees.spec_of(array))
                    parts.append(columns.buffer_of(array.copy()))
            signature = columns.encode_signature(Signature(structure, tuple(specs)))
            ranges = [part for part in parts if isinstance(part, tuple)]
            first = min([range_first for _, range_first, _ in ranges], default=0)
            stop = max([range_stop for _, _, range_stop in ranges], default=0)
        key = self._client.new_key()
        keep_from = max(self._episode_first, self._next - self._length)
        row = signature, parts
        self._sender.add(SentItem(table, key, priority, row, first, stop, keep_from))

    def flush(self, timeout_s: float | None = None) -> None:
        """Send all unsent items, and return once all items are in their tables.

        Raises:
            TimeoutError: an item could not be inserted within `timeout_s`. The items stay with the writer,
                and the next `flush` sends them. Items that are already in their tables are not inserted
                again.
            DefinitionError, ValueError: a table refuses an item. This item is dropped. All other items are in
                their tables.
        """
        self._sender.flush(timeout_s)
        self._raise_refusal()

    def end_episode(self, timeout_s: float | None = None) -> None:
        """Send all unsent items, and start the next episode. No item can contain steps of two episodes.

        This raises the same errors as `flush`. The episode has ended, except after a TimeoutError.
        """
        self._sender.flush(timeout_s)
        self._episode_first = self._next
        self._raise_refusal()

    def close(self) -> None:
        """Send all unsent items, and let the server forget the steps.

        The end of a `with` block closes the writer. If the block raises, unsent items are dropped.
        """
        try:
            self._sender.flush(None)
        except BaseException:
            self._sender.abandon()
            raise
        self._sender.close()
        self._raise_refusal()

    def rows_of(self, column: int, first: int, stop: int) -> Any:
        """Return one column of these steps as an array. Later steps may overwrite it.

        Raises:
            ValueError: the writer doesn't keep the steps any more, or they belong to an earlier episode.
        """
        if first < self._episode_first:
            raise ValueError(
                "steps of an earlier episode: take them from the history of this one, as no item has steps of"
                " two episodes"
            )
        if first < self._next - self._length:
            raise ValueError(
                f"step {first - self._episode_first} of this episode is not kept any more: only the last"
                f" {self._length} are (max_sequence_length)"
            )
        return self._chunks.rows(column, first, stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if kind is None:
            self.close()
        else:
            self._sender.abandon()

    def _raise_refusal(self) -> None:
        """Raise the error of an earlier item that a table refused. Call it last in each public method."""
        self._sender.raise_refusal()

    def _learn(self, step: Any, arrays: list[Any], structure: Structure, specs: list[Spec]) -> None:
        """Take structure, dtypes and shapes of all steps from the first one."""
        import numpy as np

        self._structure = structure
        self._specs = specs
        item_size = self._length * sum(array.nbytes for array in arrays)
        self._chunk_length = self._length * self._sender.limit(item_size)
        keys = () if structure is None else structure[1]
        is_flat = type(step) is dict and structure is not None and set(structure[2]) == {None}
        if is_flat and all(
            array.dtype.kind in "biufc"
            and (type(value) in (bool, int, float, np.ndarray) or isinstance(value, np.generic))
            for array, value in zip(arrays, [step[key] for key in keys], strict=True)
        ):
            # Most steps are flat dicts. For these, `append` has a quick check: a number must have the same
            # type as in the first step, and an array the same shape and dtype.
            self._keys = tuple(step)
            for key, value in step.items():
                is_array = type(value) is np.ndarray
                shape = value.shape if is_array else ()
                dtype = value.dtype if is_array else None
                self._kinds.append((keys.index(key), type(value), shape, dtype))
        self._begin_chunk()

    def _begin_chunk(self) -> None:
        """Start a chunk for the next steps."""
        self._chunk_stop = self._next + self._chunk_length
        with self._sender.lock:
            keep_from = min(self._next - self._length, self._sender.first_step)
            self._columns = self._chunks.begin(self._specs, self._next, self._chunk_stop, keep_from)
        # If steps are not flat dicts, `_kinds` is empty.
        self._quick = [(self._columns[column], *kind) for column, *kind in self._kinds]
