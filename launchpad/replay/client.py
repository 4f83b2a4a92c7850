"""The client of a ReplayNode: it inserts items, samples them, and manages the tables."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any

from launchpad.courier import trees
from launchpad.courier.checks import is_whole
from launchpad.courier.deadlines import deadline_after
from launchpad.courier.interruptions import is_interruption
from launchpad.courier.trees import Structure
from launchpad.errors import Stopped
from launchpad.replay import columns
from launchpad.replay.columns import ReplaySample, SampleInfo, Signature
from launchpad.replay.errors import ItemsRefused, ServerStopping
from launchpad.runtime import context

if TYPE_CHECKING:
    from launchpad.replay.batches import Batches
    from launchpad.replay.item_sender import Inserts
    from launchpad.replay.n_step_writer import NStepWriter
    from launchpad.replay.sequence_writer import SequenceWriter
    from launchpad.replay.table import TableInfo
    from launchpad.replay.trajectory_writer import TrajectoryWriter

_STOP_S = 1.0
_LOOK_S = 0.5
"""How often, in seconds, a waiting call checks if it must be cancelled."""


class ReplayClient:
    """A client of the tables of a ReplayNode, made from the node's handle.

    Items are structures of arrays and numbers: dicts, tuples, lists, dataclasses. Arrays go in and out
    unchanged, and the server never reads their contents.

    Example:
        def act(replay: lp.replay.ReplayClient):
          replay.insert({"observation": o, "action": a}, priorities={"transitions": 1.0})

        def learn(replay: lp.replay.ReplayClient):
          for batch in replay.batches("transitions", batch_size=256):
            td_errors = step(batch.data["observation"], batch.data["action"])
            replay.update_priorities("transitions", batch.info.key, abs(td_errors))

    Inserts and samples wait while the table's rate limiter blocks them, but no longer than `timeout_s`, if it
    is given. When the program stops, they raise `lp.Stopped`. `timeout_s` limits only the wait at the server
    (for an insert, the wait for each table). It does not limit the time until a lost server is back. Any
    number of threads may share a client. A client can be pickled.

    If the answer to an insert is lost, because the connection broke or the server was restarted, the client
    sends the insert again. The server recognizes an insert that it has already done, and does nothing.
    Samples are not repeated: if the answer to a sample is lost, it raises OutcomeUnknown, as other calls do.

    Args:
        server: A courier client of the node.
    """

    def __init__(self, server: Any) -> None:
        self._server = server
        self._repeatable = server.with_options(idempotent=True)

    def insert(
        self, data: Any, priorities: Mapping[str, float], timeout_s: float | None = None
    ) -> None:
        """Insert one item into each of these tables. The tables share its bytes.

        Args:
            data: A structure of arrays and numbers.
            priorities: For each table, by its name, the priority of the item there.
            timeout_s: How long to wait for the rate limiter of each table.

        Raises:
            TimeoutError: one of the tables did not accept the item within `timeout_s`.
            TypeError: a leaf is not an array or a number.
            DefinitionError: there is no such table. ValueError: a selector does not accept the priority.
        """
        arrays, structure = columns.arrays_of(data)
        signature = Signature(structure, tuple([trees.spec_of(array) for array in arrays]))
        row = columns.encode_signature(signature), [columns.buffer_of(array) for array in arrays]
        items = [(table, self.new_key(), float(p), 0) for table, p in priorities.items()]
        try:
            self.send(("", 0, [], [row], items), timeout_s)
        except ItemsRefused as refused:
            error = refused.first
        else:
            return
        raise error

    def sample(
        self, table: str, num_samples: int = 1, timeout_s: float | None = None
    ) -> list[ReplaySample]:
        """Sample items and return them one by one. The items may differ in structure.

        Returns:
            `num_samples` samples. If `timeout_s` passes first, fewer, but at least one.

        Raises:
            TimeoutError: no item could be sampled within `timeout_s`.
            OutcomeUnknown: the server was lost during the call.
        """
        samples: list[ReplaySample] = []
        for infos, groups in self._sample(table, num_samples, timeout_s):
            by_place: dict[int, ReplaySample] = {}
            for encoded, places, buffers in groups:
                signature = columns.decode_signature(encoded)
                arrays = columns.stacked(signature, buffers, len(places))
                for row, place in enumerate(places):
                    leaves = (array[row] for array in arrays)
                    info = SampleInfo(*(column[place] for column in infos))
                    data = trees.unflatten(signature.structure, leaves)
                    by_place[place] = ReplaySample(info, data)
            samples += [by_place[place] for place in sorted(by_place)]
        return samples

    def sample_batch(
        self, table: str, batch_size: int, timeout_s: float | None = None
    ) -> ReplaySample:
        """Sample items with the same structure, and stack them, so that each array has a new first axis.

        Returns:
            A batch of `batch_size` items. If `timeout_s` passes first, of fewer, but at least one.

        Raises:
            ValueError: the items differ in structure, dtypes or shapes. Pad them, or use `sample`.
            TimeoutError, OutcomeUnknown: for the same reasons as in `sample`.
        """
        return _batch_of(table, self._sample(table, batch_size, timeout_s))

    def sample_batch_until(
        self, has_ended: threading.Event, table: str, batch_size: int, timeout_s: float | None
    ) -> ReplaySample:
        """Sample as `sample_batch` does, but raise CancelledError soon after `has_ended` is set.

        `Batches` uses this.
        """
        return _batch_of(table, self._sample(table, batch_size, timeout_s, has_ended))

    def batches(
        self, table: str, batch_size: int, *, prefetch: int = 2, timeout_s: float | None = None
    ) -> Batches:
        """Return an endless iterator over batches like those of `sample_batch`; a thread samples ahead.

        Example:
            with replay.batches("transitions", 256) as batches:
              for batch in batches: …

        Args:
            prefetch: The number of batches to keep ready. Their items count as sampled before they are used.
            timeout_s: How long a batch may take. After this time, the iterator returns a smaller batch, or
                raises TimeoutError if it has no items at all.

        Raises:
            ValueError: `batch_size` or `prefetch` is less than 1.
        """
        from launchpad.replay.batches import Batches

        if not (is_whole(prefetch, at_least=1) and is_whole(batch_size, at_least=1)):
            raise ValueError(
                f"expected whole numbers, batch_size and prefetch >= 1, got {batch_size}, {prefetch}"
            )

        def sample(has_ended: threading.Event) -> ReplaySample:
            return self.sample_batch_until(has_ended, table, batch_size, timeout_s)

        return Batches(sample, prefetch, name=f"replay-{table}")

    def trajectory_writer(
        self, max_sequence_length: int, items_per_call: int = 1
    ) -> TrajectoryWriter:
        """Return a writer of steps, and of items that share these steps. See TrajectoryWriter."""
        from launchpad.replay.trajectory_writer import TrajectoryWriter

        return TrajectoryWriter(self, max_sequence_length, items_per_call)

    def n_step_writer(self, table: str, n: int, discount: float, **options: Any) -> NStepWriter:
        """Return a writer of n-step transitions. See NStepWriter."""
        from launchpad.replay.n_step_writer import NStepWriter

        return NStepWriter(self, table, n, discount, **options)

    def sequence_writer(
        self, table: str, length: int, period: int, **options: Any
    ) -> SequenceWriter:
        """Return a writer of sequences of one length, which may overlap. See SequenceWriter."""
        from launchpad.replay.sequence_writer import SequenceWriter

        return SequenceWriter(self, table, length, period, **options)

    def update_priorities(
        self, table: str, keys: Iterable[int], priorities: Iterable[float]
    ) -> int:
        """Set the priorities of items, and return the number of items found. Skip items already removed.

        Raises:
            ValueError: the numbers of keys and priorities differ.
        """
        updates = [*map(int, keys)], [*map(float, priorities)]
        if len(updates[0]) != len(updates[1]):
            raise ValueError(f"{len(updates[0])} keys and {len(updates[1])} priorities")
        return int(self._repeatable.update_priorities(table, *updates))

    def delete(self, table: str, keys: Iterable[int]) -> int:
        """Remove items, and return the number of items found."""
        return int(self._server.delete(table, [*map(int, keys)]))

    def reset(self, table: str) -> None:
        """Remove all items of a table, and reset its rate limiter."""
        self._server.reset(table)

    def info(self) -> dict[str, TableInfo]:
        """Return the state and counts of each table, by name."""
        infos: dict[str, TableInfo] = self._server.info()
        return infos

    def checkpoint(self) -> int:
        """Save all tables durably now, and return the version number of the saved state.

        The next attempt of the server starts with the last saved state, and so does the next launch with the
        same `launch(state=…)`.

        Raises:
            StateError: the state could not be written. The previously saved state is untouched.
        """
        return int(self._server.checkpoint())

    def new_key(self) -> int:
        """Return a key that no other item has, not even an item of a process forked from this one."""
        return int.from_bytes(os.urandom(8), "big") >> 1

    def send(self, message: Inserts, timeout_s: float | None) -> None:
        """Send a writer's message, and repeat it until the server has it."""
        _until_done(functools.partial(self._repeatable.insert, *message), timeout_s)

    def send_soon(self, message: Inserts) -> Future[None]:
        """Send a writer's message once, without waiting. The future gets any error."""
        answer: Future[None] = self._server.futures.insert(*message, None)
        return answer

    def forget(self, writer: str) -> None:
        """Notify the server that a writer is done. See ReplayServer.forget."""
        self._repeatable.forget(writer)

    def forget_soon(self, writer: str) -> None:
        """Notify the server as `forget` does, without waiting. Ignore failures."""
        self._repeatable.futures.forget(writer)

    def _sample(
        self,
        table: str,
        n: int,
        timeout_s: float | None,
        has_ended: threading.Event | None = None,
    ) -> Iterable[tuple[Any, Any]]:
        """Yield infos and groups of items from the server, until there are `n` items or the time is up."""
        if not is_whole(n, at_least=1):
            raise ValueError(f"expected 1 sample or more, got {n!r}")
        sample = self._server.sample
        if has_ended is not None:
            sample = functools.partial(self._sample_until, has_ended)
        has_some = False
        ends = deadline_after(timeout_s)
        # Pass the first timeout on as it was given, because the server's error message contains it.
        left_s = None if timeout_s is None else max(0.0, timeout_s)
        while n > 0:
            try:
                *infos, groups = _until_done(functools.partial(sample, table, n), left_s)
            except TimeoutError as error:
                if not has_some or is_interruption(error):
                    raise
                return
            has_some = True
            n -= len(infos[0])
            yield infos, groups
            left_s = None if ends is None else max(0.0, ends - time.monotonic())

    def _sample_until(self, has_ended: threading.Event, *arguments: Any) -> Any:
        """Call the server's `sample`, and cancel the call if it still waits when `has_ended` is set."""
        if has_ended.is_set():
            raise CancelledError
        future = self._server.futures.sample(*arguments)
        while not future.done():
            try:
                future.exception(_LOOK_S)
            except TimeoutError as error:
                if is_interruption(error):
                    raise
            if has_ended.is_set():
                future.cancel()
        return future.result()

    def __reduce__(self) -> tuple[Any, ...]:
        return ReplayClient, (self._server,)

    def __eq__(self, other: object) -> bool:
        return other._server == self._server if isinstance(other, ReplayClient) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._server)

    def __repr__(self) -> str:
        return f"ReplayClient({self._server!r})"


def _until_done(call: Callable[[float | None], Any], timeout_s: float | None) -> Any:
    """Make a call with the time that is left.

    If the server was stopping and did not do the call, repeat it. If this worker stops, too, raise Stopped.
    """
    ends = deadline_after(timeout_s)
    left_s = None if timeout_s is None else max(0.0, timeout_s)
    while True:
        try:
            return call(left_s)
        except ServerStopping as error:
            if left_s == 0:
                raise TimeoutError(f"within {timeout_s:.3g} s nothing but: {error}") from None
            pause_s = _STOP_S if left_s is None else min(_STOP_S, left_s)
            me = context.try_current()
            if me is None:
                time.sleep(pause_s)
            elif me.stop.event.wait(pause_s):
                raise Stopped from None
            left_s = None if ends is None else max(0.0, ends - time.monotonic())


def _batch_of(table: str, sampled: Iterable[tuple[Any, Any]]) -> ReplaySample:
    """Return the sampled items as one batch, stacked in the server's order."""
    import numpy as np

    signatures: dict[Signature, Structure] = {}
    parts = []
    infos = []
    order: list[int] = []
    for info, groups in sampled:
        infos.append(info)
        first = len(order)
        for encoded, places, buffers in groups:
            signature = columns.decode_signature(encoded)
            signatures[signature.without_order()] = signature.structure
            parts.append(columns.stacked(signature, buffers, len(places)))
            order += [first + place for place in places]
    if len(signatures) > 1:
        examples = " and ".join(str(signature) for signature in list(signatures)[:2])
        raise ValueError(
            f"items of table {table!r} cannot be stacked: some are {examples}. Insert such as are alike, as"
            " SequenceWriter does by padding, or use sample(), which stacks nothing"
        )
    arrays: Iterable[Any]
    arrays = parts[0] if len(parts) == 1 else map(np.concatenate, zip(*parts, strict=True))
    if len(parts) > len(infos):
        # Equal signatures may have different bytes. In this case, the server has put their items into
        # different groups. Put the items back into the order in which they were sampled.
        by_place = np.argsort(order)
        arrays = [array[by_place] for array in arrays]
    columns_of_info = [np.concatenate([*map(np.asarray, c)]) for c in zip(*infos, strict=True)]
    _, structure = signatures.popitem()
    data = trees.unflatten(structure, iter(arrays))
    return ReplaySample(SampleInfo(*columns_of_info), data)
