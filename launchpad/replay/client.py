"""The client of a ReplayNode: inserts, samples, and what else can be done to its tables."""

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
"""How often a call that may be taken back looks whether it is to be."""


class ReplayClient:
    """Inserts into and samples from the tables of a ReplayNode; what its handle turns into.

    Items are structures of arrays and numbers: dicts, tuples, lists, dataclasses. Arrays go in and out as
    they are; the server does not look into them.

    Example:
        def act(replay: lp.replay.ReplayClient):
          replay.insert({"observation": o, "action": a}, priorities={"transitions": 1.0})

        def learn(replay: lp.replay.ReplayClient):
          for batch in replay.batches("transitions", batch_size=256):
            td_errors = step(batch.data["observation"], batch.data["action"])
            replay.update_priorities("transitions", batch.info.key, abs(td_errors))

    Where a table's rate limiter says so, inserts and samples wait; for `timeout_s` at most if that is given,
    and until the program stops, then they raise `lp.Stopped`. `timeout_s` limits this wait at the server
    (of an insert, the one for each table), and not the time until a server that was lost is there again.
    Any number of threads may share a client. It can be pickled.

    An insert whose answer is lost (the connection broke, the server was started again) is sent again; the
    server recognises one that it had carried out, and does nothing. A sample is not: it raises
    OutcomeUnknown, as any call.

    Args:
        server: A courier client of the node.
    """

    def __init__(self, server: Any) -> None:
        self._server = server
        self._repeatable = server.with_options(idempotent=True)

    def insert(
        self, data: Any, priorities: Mapping[str, float], timeout_s: float | None = None
    ) -> None:
        """Inserts one item into each of these tables; they share its bytes.

        Args:
            data: A structure of arrays and numbers.
            priorities: Table → priority.
            timeout_s: How long it may wait for the limiter of each.

        Raises:
            TimeoutError: it could not be inserted within `timeout_s`, into one of them.
            TypeError: a leaf is no array or number.
            DefinitionError: there is no such table. ValueError: a priority that its selector cannot take.
        """
        arrays, found = columns.arrays_of(data)
        signature = Signature(found, tuple([trees.spec_of(array) for array in arrays]))
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
        """Samples items, each by itself: they need not be alike.

        Returns:
            So many; fewer, but one at least, when `timeout_s` is over.

        Raises:
            TimeoutError: none could be sampled within `timeout_s`.
            OutcomeUnknown: the server was lost meanwhile.
        """
        found: list[ReplaySample] = []
        for infos, groups in self._sample(table, num_samples, timeout_s):
            samples: dict[int, ReplaySample] = {}
            for encoded, places, buffers in groups:
                signature = columns.decode_signature(encoded)
                arrays = columns.stacked(signature, buffers, len(places))
                for row, place in enumerate(places):
                    leaves = (array[row] for array in arrays)
                    info = SampleInfo(*(column[place] for column in infos))
                    data = trees.unflatten(signature.structure, leaves)
                    samples[place] = ReplaySample(info, data)
            found += [samples[place] for place in sorted(samples)]
        return found

    def sample_batch(
        self, table: str, batch_size: int, timeout_s: float | None = None
    ) -> ReplaySample:
        """Samples items that are alike, stacked: each array has a new first axis.

        Returns:
            So many; fewer, but one at least, when `timeout_s` is over.

        Raises:
            ValueError: they differ in structure, dtypes or shapes: pad them, or use `sample`.
            TimeoutError, OutcomeUnknown: as `sample`.
        """
        return _batch_of(table, self._sample(table, batch_size, timeout_s))

    def sample_batch_until(
        self, has_ended: threading.Event, table: str, batch_size: int, timeout_s: float | None
    ) -> ReplaySample:
        """As `sample_batch`, with CancelledError soon after `has_ended` is set; what Batches calls."""
        return _batch_of(table, self._sample(table, batch_size, timeout_s, has_ended))

    def batches(
        self, table: str, batch_size: int, *, prefetch: int = 2, timeout_s: float | None = None
    ) -> Batches:
        """Return batches without an end, as `sample_batch` gives them, sampled ahead by a thread.

        Example:
            with replay.batches("transitions", 256) as batches:
              for batch in batches: …

        Args:
            prefetch: How many batches are there already while one is worked on. Their items were sampled,
                and count as such, before they are used.
            timeout_s: How long a batch may take; when it is over a batch may be smaller, and if there is
                nothing at all the iterator raises TimeoutError.

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
        """A writer of steps, and of items that share them: see TrajectoryWriter."""
        from launchpad.replay.trajectory_writer import TrajectoryWriter

        return TrajectoryWriter(self, max_sequence_length, items_per_call)

    def n_step_writer(self, table: str, n: int, discount: float, **options: Any) -> NStepWriter:
        """A writer of n-step transitions: see NStepWriter."""
        from launchpad.replay.n_step_writer import NStepWriter

        return NStepWriter(self, table, n, discount, **options)

    def sequence_writer(
        self, table: str, length: int, period: int, **options: Any
    ) -> SequenceWriter:
        """A writer of sequences of one length, which may overlap: see SequenceWriter."""
        from launchpad.replay.sequence_writer import SequenceWriter

        return SequenceWriter(self, table, length, period, **options)

    def update_priorities(
        self, table: str, keys: Iterable[int], priorities: Iterable[float]
    ) -> int:
        """Sets the priorities of items; returns of how many. Those that have gone are passed over.

        Raises:
            ValueError: there is not a priority for each key.
        """
        updates = [*map(int, keys)], [*map(float, priorities)]
        if len(updates[0]) != len(updates[1]):
            raise ValueError(f"{len(updates[0])} keys and {len(updates[1])} priorities")
        return int(self._repeatable.update_priorities(table, *updates))

    def delete(self, table: str, keys: Iterable[int]) -> int:
        """Removes items; returns how many there were."""
        return int(self._server.delete(table, [*map(int, keys)]))

    def reset(self, table: str) -> None:
        """Removes all items of a table; its limiter begins anew."""
        self._server.reset(table)

    def info(self) -> dict[str, TableInfo]:
        """How each table is."""
        found: dict[str, TableInfo] = self._server.info()
        return found

    def checkpoint(self) -> int:
        """Saves all tables now, durably, and returns which version that is.

        The next attempt of the server begins with what was saved last; so does the next launch with the same
        `launch(state=…)`.

        Raises:
            StateError: it could not be written; what was saved before is untouched.
        """
        return int(self._server.checkpoint())

    def new_key(self) -> int:
        """A key that no other item has, also not one of a process that was forked from this one."""
        return int.from_bytes(os.urandom(8), "big") >> 1

    def send(self, message: Inserts, timeout_s: float | None) -> None:
        """What writers send."""
        _until_done(functools.partial(self._repeatable.insert, *message), timeout_s)

    def send_soon(self, message: Inserts) -> Future[None]:
        """As `send`, once, without waiting: whatever goes wrong the future has."""
        found: Future[None] = self._server.futures.insert(*message, None)
        return found

    def forget(self, writer: str) -> None:
        """A writer is done; see ReplayServer.forget."""
        self._repeatable.forget(writer)

    def forget_soon(self, writer: str) -> None:
        """As `forget`; does not wait, and it does not matter if that fails."""
        self._repeatable.futures.forget(writer)

    def _sample(
        self,
        table: str,
        n: int,
        timeout_s: float | None,
        has_ended: threading.Event | None = None,
    ) -> Iterable[tuple[Any, Any]]:
        """What the server gives, until there are `n` or the time is over: infos, and groups of items."""
        if not is_whole(n, at_least=1):
            raise ValueError(f"expected 1 sample or more, got {n!r}")
        sample = self._server.sample
        if has_ended is not None:
            sample = functools.partial(self._sample_until, has_ended)
        has_some = False
        ends = deadline_after(timeout_s)
        # At first as it was given: the server's error says how long it was.
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
        """Samples, and takes the call back where it still waits when `has_ended` is set."""
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
    """Calls with the time that is left; again where the server was stopping and had not done it.

    Stopped if this worker stops, too.
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
    """Items that are alike, stacked: of what the server gave, in that order."""
    import numpy as np

    signatures: dict[Signature, Structure] = {}
    parts, infos = [], []
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
        shown = " and ".join(str(each) for each in list(signatures)[:2])
        raise ValueError(
            f"items of table {table!r} cannot be stacked: some are {shown}. Insert such as are alike, as"
            " SequenceWriter does by padding, or use sample(), which stacks nothing"
        )
    arrays: Iterable[Any] = (
        parts[0] if len(parts) == 1 else map(np.concatenate, zip(*parts, strict=True))
    )
    if len(parts) > len(infos):  # equal signatures whose bytes differ: each item to its place
        by_place = np.argsort(order)
        arrays = [array[by_place] for array in arrays]
    columns_of_info = [np.concatenate([*map(np.asarray, c)]) for c in zip(*infos, strict=True)]
    _, structure = signatures.popitem()
    data = trees.unflatten(structure, iter(arrays))
    return ReplaySample(SampleInfo(*columns_of_info), data)
