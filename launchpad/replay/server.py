"""The server of a ReplayNode: tables, and the calls that wait for them.

    insert, sample ──▶ does the limiter allow it, and does no other call wait before it?
                         yes ──▶ done at once, in the thread of the call
                         no  ──▶ waits for its turn in the line of the table; the wait ends
                                 with its timeout, with its caller, or with the program

Each table has its own lock and lines.
"""

from __future__ import annotations

import pickle
import threading
from array import array
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar

from launchpad.courier import caller as courier_caller
from launchpad.courier.explained import did_you_mean
from launchpad.courier.promise import Promise
from launchpad.courier.server.decorators import serves
from launchpad.errors import DefinitionError
from launchpad.replay.errors import ItemsRefused, ServerStopping
from launchpad.replay.rows import Row, SentColumn, Window, join, pack, unpack
from launchpad.replay.table import Sampled, Table, TableInfo, TableItem
from launchpad.runtime import callers, context
from launchpad.services.requests import AnsweredRequests
from launchpad.services.waiting import Line, WaitingCalls, outcome_of

T = TypeVar("T")

_REMEMBERED = 100_000
_KEEP = 2

Group = tuple[bytes, list[int], list[pickle.PickleBuffer | bytearray]]
"""A signature, the indexes of the sampled items that have it, and their columns."""
Answer = tuple[Any, Any, Any, Any, Any, list[Group]]
"""Key, probability, table size, priority and times sampled of each sampled item, and the items' data."""


class Action(NamedTuple, Generic[T]):
    """A call's action on a table. It is done when it is the call's turn and the rate limiter allows it."""

    line: Line
    what: str
    may: Callable[[], bool]
    act: Callable[[], T]


class TableServer:
    """A table, and the calls that wait for it. In each line, the call that came first acts first."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._calls = WaitingCalls(f"replay-{table.name}")
        self._inserts = self._calls.line()
        self._samples = self._calls.line()
        self._inserted = AnsweredRequests[bool](_REMEMBERED)

    def insertion(self, key: int, priority: float, row: Row) -> Action[bool]:
        """Return an action that inserts an item once. If its key comes again, the call was repeated."""

        def insert() -> bool:
            try:
                self.table.insert(key, priority, row)
            except Exception as error:
                # Catch all errors, because a user's own selector may raise anything.
                raise ItemsRefused({key: error}) from error
            return True

        def may() -> bool:
            return self._inserted.has(key) or self.table.can_insert()

        def act() -> bool:
            return self._inserted.once(key, insert)

        return Action(self._inserts, "insert into", may, act)

    def sampling(self, most: int) -> Action[list[Sampled]]:
        """Return an action that samples from one to `most` items, as many as the limiter allows."""
        table = self.table

        def act() -> list[Sampled]:
            samples = [table.sample()]
            while len(samples) < most and table.can_sample():
                samples.append(table.sample())
            return samples

        return Action(self._samples, "sample from", table.can_sample, act)

    def try_do(self, action: Action[T]) -> T | None:
        """Do an action if it is allowed now and no other call waits in its line. Otherwise return None."""
        with self._calls.changing():
            result = self._calls.answer(action.line, action.may, action.act, lambda: None, wait_s=0)
        # A call that doesn't wait never gets a Promise.
        assert not isinstance(result, Promise)
        return result

    async def do(self, action: Action[T], timeout_s: float | None) -> T:
        """Do an action when it is its turn.

        The call enters the line only here, so that a call that is cancelled earlier leaves nothing in the
        line.

        Raises:
            TimeoutError: the action was not done, because its turn did not come within `timeout_s`.
            ServerStopping: the action was not done, because the server is stopping.
        """
        caller = courier_caller.current.get()

        def late() -> T:
            name = "a caller" if caller is None else caller.peer.name
            raise TimeoutError(
                f"{name} could not {action.what} table {self.table.name!r} within {timeout_s:.3g} s:"
                f" {self._info()}"
            )

        with self._calls.changing():
            result = self._calls.answer(action.line, action.may, action.act, late, timeout_s)
        if isinstance(result, Promise):
            result = await outcome_of(result)
        return result

    def change(self, change: Callable[[], T]) -> T:
        """Change the table at once, without waiting for a turn."""
        with self._calls.changing():
            return change()

    def stop(self) -> None:
        """End all waiting calls, and all later ones, with ServerStopping."""

        def refuse() -> Any:
            raise ServerStopping(f"table {self.table.name!r} is being stopped")

        self._calls.end(refuse)

    def info(self) -> TableInfo:
        """Return the state and counts of the table, with the number of waiting calls."""
        with self._calls.changing():
            return self._info()

    def _info(self) -> TableInfo:
        return replace(
            self.table.info(),
            waiting_inserts=len(self._inserts),
            waiting_samples=len(self._samples),
        )

    def state(self) -> dict[str, Any]:
        """Return the state to save.

        Callers wait only while this copies the list of items. The items' data is not copied.
        """
        with self._calls.changing():
            limiter = self.table.rate_limiter
            items = [(i.key, i.priority, i.times_sampled, i.data) for i in self.table.items()]
            counts = limiter.inserts, limiter.samples, limiter.deletes
            diffs = limiter.lowest_diff, limiter.highest_diff
            inserted = self._inserted.copy()
            return {"items": items, "counts": (*counts, diffs), "inserted": inserted}

    def refill(
        self,
        items: Iterable[TableItem],
        counts: Iterable[Any],
        inserted: AnsweredRequests[bool],
    ) -> None:
        """Replace the table's content with what `state` returned."""

        def refill() -> None:
            self.table.refill(items, *counts)
            self._inserted = inserted

        self.change(refill)


@serves(
    only=[
        "insert",
        "sample",
        "update_priorities",
        "delete",
        "reset",
        "info",
        "checkpoint",
        "forget",
    ]
)
class ReplayServer:
    """The server of a ReplayNode, for `ReplayClient`s only."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self._tables = {table.name: TableServer(table) for table in tables}
        self._windows: dict[str, tuple[Window, callers.Caller | None]] = {}
        # A writer may repeat a call while its first attempt still runs here, in another thread. Both attempts
        # change the writer's window.
        self._lock = threading.Lock()
        me = context.try_current()
        if me is not None:
            for number, table in enumerate(tables):
                table.seed(me.seed + number + (me.attempt << 32))
            me.stop.add_handler(self.stop)

    def insert(
        self,
        writer: str,
        keep_from: int,
        segments: Sequence[tuple[int, int, Sequence[Any]]],
        rows: Sequence[tuple[bytes, Sequence[SentColumn]]],
        items: Sequence[tuple[str, int, float, int]],
        timeout_s: float | None,
    ) -> Coroutine[Any, Any, None] | None:
        """Insert items into tables, one after the other.

        Args:
            writer: The writer of the steps; empty if the rows contain all their data.
            keep_from: The first step to which the writer may still refer after this call.
            segments: New steps. Each segment has the first step, the step after the last, and a buffer for
                each column.
            rows: The data of the items.
            items: For each item, its table, key, priority, and the index of its row.
            timeout_s: How long each item may wait.

        Raises:
            ItemsRefused: for some items, there is no such table, or the table does not accept the priority.
                Other items may have been inserted already. They are not inserted twice if the call is
                repeated.
        """
        window = self._window(writer) if writer else Window()
        with self._lock:
            for segment in segments:
                window.add(*segment)
            server_rows = [window.row(*row) for row in rows]
            window.forget(keep_from)
        insertions = []
        errors: dict[int, Exception] = {}
        for table, key, priority, row in items:
            try:
                table_server = self._table(table)
                table_server.table.check(priority)
            except Exception as error:
                errors[key] = error
            else:
                insertions.append(
                    (table_server, table_server.insertion(key, priority, server_rows[row]))
                )
        if errors:
            raise ItemsRefused(errors)
        for number, (table_server, action) in enumerate(insertions):
            if not table_server.try_do(action):
                return self._insert_rest(insertions[number:], timeout_s)
        return None

    def sample(
        self, table: str, most: int, timeout_s: float | None
    ) -> Answer | Coroutine[Any, Any, Answer]:
        """Return the infos of one to `most` items, and their data in groups with equal signatures."""
        table_server = self._table(table)
        action = table_server.sampling(most)
        samples = table_server.try_do(action)
        return _answer(samples) if samples else self._sample_later(table_server, action, timeout_s)

    def update_priorities(
        self, table: str, keys: Sequence[int], priorities: Sequence[float]
    ) -> int:
        table_server = self._table(table)
        for priority in priorities:
            table_server.table.check(priority)

        return table_server.change(lambda: sum(map(table_server.table.update, keys, priorities)))

    def delete(self, table: str, keys: Sequence[int]) -> int:
        table_server = self._table(table)
        return table_server.change(lambda: sum(map(table_server.table.delete, keys)))

    def reset(self, table: str) -> None:
        table_server = self._table(table)
        table_server.change(table_server.table.reset)

    def info(self) -> dict[str, TableInfo]:
        return {name: table.info() for name, table in self._tables.items()}

    def checkpoint(self) -> int:
        """Save the tables now, and return the version number of the saved state."""
        with context.current().state.saved_states(of_object=True) as states:
            return states.save(self.save(), None, _KEEP)

    def forget(self, writer: str) -> None:
        """Forget the steps of a writer that was closed."""
        with self._lock:
            self._windows.pop(writer, None)

    def save(self) -> dict[str, Any]:
        """Return the state of all tables. Bytes that items share are in it once.

        Each table's state is of one moment, but different tables may be saved at different moments.
        """
        tables = {name: table.state() for name, table in self._tables.items()}
        rows: list[Row] = []
        numbers: dict[int, int] = {}
        for state in tables.values():
            for *_, row in state["items"]:
                if id(row) not in numbers:
                    numbers[id(row)] = len(rows)
                    rows.append(row)
            state["rows"] = array("q", [numbers[id(row)] for *_, row in state["items"]])
            state["items"] = [tuple(item) for *item, _ in state["items"]]
        return {"tables": tables, "rows": pack(rows)}

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore the saved tables that this node has, and drop others. New tables start empty."""
        rows = unpack(saved["rows"])
        for name, state in saved["tables"].items():
            if name in self._tables:
                items = zip(state["items"], state["rows"], strict=True)
                table_items = [
                    TableItem(key, p, rows[row], times) for (key, p, times), row in items
                ]
                self._tables[name].refill(table_items, state["counts"], state["inserted"])

    def stop(self) -> None:
        """End all waiting calls."""
        for table in self._tables.values():
            table.stop()

    async def _insert_rest(
        self, insertions: Sequence[tuple[TableServer, Action[bool]]], timeout_s: float | None
    ) -> None:
        for table_server, action in insertions:
            if not table_server.try_do(action):
                await table_server.do(action, timeout_s)

    async def _sample_later(
        self, table_server: TableServer, action: Action[list[Sampled]], timeout_s: float | None
    ) -> Answer:
        return _answer(await table_server.do(action, timeout_s))

    def _table(self, name: str) -> TableServer:
        try:
            return self._tables[name]
        except KeyError:
            hint = did_you_mean(name, self._tables)
            raise DefinitionError(
                f"there is no table {name!r}; there are {sorted(self._tables)}.{hint}"
            ) from None

    def _window(self, writer: str) -> Window:
        """Return a writer's window. If it is new, also drop the windows of callers that have gone."""
        with self._lock:
            if writer in self._windows:
                window, _ = self._windows[writer]
                return window
            gone_writers = [
                w for w, (_, caller) in self._windows.items() if caller and caller.is_gone
            ]
            for gone_writer in gone_writers:
                del self._windows[gone_writer]
            window = Window()
            self._windows[writer] = window, callers.try_caller()
            return window


def _answer(samples: list[Sampled]) -> Answer:
    keys, probabilities, sizes, priorities, times, rows = zip(*samples, strict=True)
    groups: dict[bytes, list[int]] = {}
    for place, row in enumerate(rows):
        groups.setdefault(row[0], []).append(place)
    groups_of_rows = [
        (sig, places, join([rows[i] for i in places])) for sig, places in groups.items()
    ]
    return (
        array("Q", keys),
        array("d", probabilities),
        array("q", sizes),
        array("d", priorities),
        array("q", times),
        groups_of_rows,
    )
