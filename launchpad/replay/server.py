"""The server of a ReplayNode: tables, and the calls that wait for them.

    insert, sample ──▶ may it be done, and does none wait before it?
                         yes ──▶ done at once, in the thread of the call
                         no  ──▶ waits for its turn in the line of the table; it ends
                                 with its time, with its caller, or with the program

Each table has a lock and lines of its own.
"""

from __future__ import annotations

import pickle
import threading
from array import array
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar

from launchpad.courier import caller as courier_caller
from launchpad.courier.promise import Promise
from launchpad.courier.server.decorators import serves
from launchpad.errors import DefinitionError, did_you_mean
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
"""A signature, the places of the items that have it, and their columns."""
Answer = tuple[Any, Any, Any, Any, Any, list[Group]]
"""Of each sampled item: key, probability, table size, priority, times sampled. And their data."""


class Action(NamedTuple, Generic[T]):
    """Something that a call does to a table as soon as it is its turn, and it may."""

    line: Line
    what: str
    may: Callable[[], bool]
    act: Callable[[], T]


class TableServer:
    """A table, and the calls that wait for it: in each line the first to come is the first to act."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._calls = WaitingCalls(f"replay-{table.name}")
        self._inserts = self._calls.line()
        self._samples = self._calls.line()
        self._inserted = AnsweredRequests[bool](_REMEMBERED)

    def insertion(self, key: int, priority: float, row: Row) -> Action[bool]:
        """Return the insertion of an item. It is done once: a key that comes again is a repeated call's."""

        def insert() -> bool:
            try:
                self.table.insert(key, priority, row)
            except Exception as error:  # of a user's selector
                raise ItemsRefused({key: error}) from error
            return True

        def may() -> bool:
            return self._inserted.has(key) or self.table.can_insert()

        def act() -> bool:
            return self._inserted.once(key, insert)

        return Action(self._inserts, "insert into", may, act)

    def sampling(self, most: int) -> Action[list[Sampled]]:
        """Return the sampling of one item or more, up to `most`: as many as the limiter lets through."""
        table = self.table

        def act() -> list[Sampled]:
            samples = [table.sample()]
            while len(samples) < most and table.can_sample():
                samples.append(table.sample())
            return samples

        return Action(self._samples, "sample from", table.can_sample, act)

    def try_do(self, action: Action[T]) -> T | None:
        """Do it if it may be done, and no call waits to do the like; else return None."""
        with self._calls.changing():
            done = self._calls.answer(action.line, action.may, action.act, lambda: None, wait_s=0)
        # There is none for a call that doesn't wait.
        assert not isinstance(done, Promise)
        return done

    async def do(self, action: Action[T], timeout_s: float | None) -> T:
        """Do it when it is its turn.

        It enters the line here, and not before: a call that is cancelled first has left nothing in it.

        Raises:
            TimeoutError: that was not within `timeout_s`; it was not done.
            ServerStopping: nothing is done any more.
        """
        caller = courier_caller.current.get()

        def late() -> T:
            name = "a caller" if caller is None else caller.peer.name
            raise TimeoutError(
                f"{name} could not {action.what} table {self.table.name!r} within {timeout_s:.3g} s:"
                f" {self._info()}"
            )

        with self._calls.changing():
            done = self._calls.answer(action.line, action.may, action.act, late, timeout_s)
        if isinstance(done, Promise):
            done = await outcome_of(done)
        return done

    def change(self, change: Callable[[], T]) -> T:
        """Do something to the table that needs no turn."""
        with self._calls.changing():
            return change()

    def stop(self) -> None:
        """End all that wait, and whatever would act from now on."""

        def refuse() -> Any:
            raise ServerStopping(f"table {self.table.name!r} is being stopped")

        self._calls.end(refuse)

    def info(self) -> TableInfo:
        """Return how the table is, and how many wait for it."""
        with self._calls.changing():
            return self._info()

    def _info(self) -> TableInfo:
        return replace(
            self.table.info(),
            waiting_inserts=len(self._inserts),
            waiting_samples=len(self._samples),
        )

    def state(self) -> dict[str, Any]:
        """What is saved. Callers wait only while the list of items is copied, not the items' data."""
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
        """Takes up what `state` gave."""

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
    """What a ReplayNode serves, to `ReplayClient`s and to nothing else."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self._tables = {table.name: TableServer(table) for table in tables}
        self._windows: dict[str, tuple[Window, callers.Caller | None]] = {}
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
        """Inserts items into tables, one after the other.

        Args:
            writer: Whose steps these are; empty where the rows hold all themselves.
            keep_from: It will not refer to steps before this one any more.
            segments: Steps that are new: the first, the one after the last, and a buffer for each column.
            rows: Data of items.
            items: Table, key, priority, and which of the rows.
            timeout_s: How long each may wait.

        Raises:
            ItemsRefused: there is no such table, or it does not take that priority. Others may have been
                inserted, and would not be again.
        """
        window = self._window(writer) if writer else Window()
        with self._lock:
            for segment in segments:
                window.add(*segment)
            made = [window.row(*row) for row in rows]
            window.forget(keep_from)
        todo = []
        refused: dict[int, Exception] = {}
        for table, key, priority, row in items:
            try:
                served = self._table(table)
                served.table.check(priority)
            except Exception as error:
                refused[key] = error
            else:
                todo.append((served, served.insertion(key, priority, made[row])))
        if refused:
            raise ItemsRefused(refused)
        for number, (served, action) in enumerate(todo):
            if not served.try_do(action):
                return self._insert_rest(todo[number:], timeout_s)
        return None

    def sample(
        self, table: str, most: int, timeout_s: float | None
    ) -> Answer | Coroutine[Any, Any, Answer]:
        """Infos of one item or more, up to `most`, and their data in groups of one signature."""
        served = self._table(table)
        action = served.sampling(most)
        samples = served.try_do(action)
        return _answer(samples) if samples else self._sample_later(served, action, timeout_s)

    def update_priorities(
        self, table: str, keys: Sequence[int], priorities: Sequence[float]
    ) -> int:
        served = self._table(table)
        for priority in priorities:
            served.table.check(priority)

        return served.change(lambda: sum(map(served.table.update, keys, priorities)))

    def delete(self, table: str, keys: Sequence[int]) -> int:
        served = self._table(table)
        return served.change(lambda: sum(map(served.table.delete, keys)))

    def reset(self, table: str) -> None:
        served = self._table(table)
        served.change(served.table.reset)

    def info(self) -> dict[str, TableInfo]:
        return {name: table.info() for name, table in self._tables.items()}

    def checkpoint(self) -> int:
        """Saves itself now; returns which version that is."""
        with context.current().state.saved_states(of_object=True) as states:
            return states.save(self.save(), None, _KEEP)

    def forget(self, writer: str) -> None:
        """A writer was closed."""
        with self._lock:
            self._windows.pop(writer, None)

    def save(self) -> dict[str, Any]:
        """All tables, each as it is at one moment; bytes that items share are in it once."""
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
        """Tables that there are not any more are dropped; new ones begin empty."""
        rows = unpack(saved["rows"])
        for name, state in saved["tables"].items():
            if name in self._tables:
                items = zip(state["items"], state["rows"], strict=True)
                made = [TableItem(key, p, rows[row], times) for (key, p, times), row in items]
                self._tables[name].refill(made, state["counts"], state["inserted"])

    def stop(self) -> None:
        """Ends the calls that wait."""
        for table in self._tables.values():
            table.stop()

    async def _insert_rest(
        self, todo: Sequence[tuple[TableServer, Action[bool]]], timeout_s: float | None
    ) -> None:
        for served, action in todo:
            if not served.try_do(action):
                await served.do(action, timeout_s)

    async def _sample_later(
        self, served: TableServer, action: Action[list[Sampled]], timeout_s: float | None
    ) -> Answer:
        return _answer(await served.do(action, timeout_s))

    def _table(self, name: str) -> TableServer:
        try:
            return self._tables[name]
        except KeyError:
            hint = did_you_mean(name, self._tables)
            raise DefinitionError(
                f"there is no table {name!r}; there are {sorted(self._tables)}.{hint}"
            ) from None

    def _window(self, writer: str) -> Window:
        """The writer's; those of workers that have ended go when a new one comes."""
        with self._lock:
            if (known := self._windows.get(writer)) is not None:
                return known[0]
            gone = [w for w, (_, caller) in self._windows.items() if caller and caller.is_gone]
            for each in gone:
                del self._windows[each]
            window = Window()
            self._windows[writer] = window, callers.try_caller()
            return window


def _answer(found: list[Sampled]) -> Answer:
    keys, probabilities, sizes, priorities, times, rows = zip(*found, strict=True)
    groups: dict[bytes, list[int]] = {}
    for place, row in enumerate(rows):
        groups.setdefault(row[0], []).append(place)
    joined = [(sig, places, join([rows[i] for i in places])) for sig, places in groups.items()]
    return (
        array("Q", keys),
        array("d", probabilities),
        array("q", sizes),
        array("d", priorities),
        array("q", times),
        joined,
    )
