"""The server of a ReplayNode: tables, and the calls that wait for them.

    insert, sample ──▶ may it be done, and does none wait before it?
                         yes ──▶ done at once, in the thread of the call
                         no  ──▶ a coroutine waits for its turn in the line of the table; it ends
                                 with its time, with its caller, or with the program

No thread waits. What changes a table wakes the first in each line whose turn has come; only that one acts, so
that nothing is sampled for a caller that has gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import threading
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar

from launchpad.courier.server.decorators import serves
from launchpad.errors import DefinitionError, did_you_mean
from launchpad.replay.errors import ItemsRefused, ServerStopping
from launchpad.replay.rows import Row, SentColumn, Window, join, pack, unpack
from launchpad.replay.table import Sampled, Table, TableInfo, TableItem
from launchpad.runtime import callers, context

T = TypeVar("T")

_REMEMBERED = 100_000
_KEEP = 2

Group = tuple[bytes, list[int], list[pickle.PickleBuffer | bytearray]]
"""A signature, the places of the items that have it, and their columns."""
Answer = tuple[Any, Any, Any, Any, Any, list[Group]]
"""Of each sampled item: key, probability, table size, priority, times sampled. And their data."""


class Action(NamedTuple, Generic[T]):
    """Something that a call does to a table as soon as it is its turn, and it may."""

    line: deque[Turn]
    what: str
    may: Callable[[], bool]
    act: Callable[[], T]


class Turn:
    """A call in a line."""

    def __init__(self, may: Callable[[], bool]) -> None:
        self.may = may
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] | None = None

    def sleep(self) -> asyncio.Future[None]:
        """What is done when it is woken."""
        self._future = future = self._loop.create_future()
        return future

    def wake(self) -> None:
        """Lets it look again. From any thread."""
        future, self._future = self._future, None
        if future is not None:
            # If the loop is closed, the call has ended with it.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_set, future)


class TableServer:
    """A table, and the calls that wait for it: in each line the first to come is the first to act."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._lock = threading.Lock()
        self._inserts: deque[Turn] = deque()
        self._samples: deque[Turn] = deque()
        self._inserted: OrderedDict[int, None] = OrderedDict()
        self._is_stopping = False

    def insertion(self, key: int, priority: float, row: Row) -> Action[bool]:
        """Inserts an item, once: a key that has come before is that of a call which was repeated."""

        def act() -> bool:
            if key not in self._inserted:
                try:
                    self.table.insert(key, priority, row)
                except Exception as error:  # of a user's selector
                    raise ItemsRefused({key: error}) from error
                self._inserted[key] = None
                if len(self._inserted) > _REMEMBERED:
                    self._inserted.popitem(last=False)
            return True

        def may() -> bool:
            return key in self._inserted or self.table.can_insert()

        return Action(self._inserts, "insert into", may, act)

    def sampling(self, most: int) -> Action[list[Sampled]]:
        """Samples one item or more, up to `most`: as many as the limiter lets through."""
        table = self.table

        def act() -> list[Sampled]:
            found = [table.sample()]
            while len(found) < most and table.can_sample():
                found.append(table.sample())
            return found

        return Action(self._samples, "sample from", table.can_sample, act)

    def try_do(self, action: Action[T]) -> T | None:
        """Does it if it may be done, and no call waits to do the like; else None."""
        with self._lock:
            if action.line or self._is_stopping or not action.may():
                return None
            try:
                return action.act()
            finally:
                self._wake()

    async def do(self, action: Action[T], timeout_s: float | None) -> T:
        """Does it when it is its turn. Raises TimeoutError, and ServerStopping; then it was not done."""
        caller, turn = callers.try_caller(), Turn(action.may)
        with self._lock:
            action.line.append(turn)
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    with self._lock:
                        if self._is_stopping:
                            raise ServerStopping(f"table {self.table.name!r} is being stopped")
                        if action.line[0] is turn and action.may():
                            if caller is not None and caller.is_gone:
                                raise asyncio.CancelledError
                            return action.act()
                        asleep = turn.sleep()
                    await asleep
        except TimeoutError:
            raise TimeoutError(
                f"{caller.worker if caller else 'a caller'} could not {action.what} table"
                f" {self.table.name!r} within {timeout_s:.3g} s: {self.info()}"
            ) from None
        finally:
            with self._lock:
                action.line.remove(turn)
                self._wake()

    def change(self, change: Callable[[], T]) -> T:
        """Does something to the table that needs no turn."""
        with self._lock:
            try:
                return change()
            finally:
                self._wake()

    def stop(self) -> None:
        """Ends all that wait, and whatever would have to from now on."""
        with self._lock:
            self._is_stopping = True
            for turn in (*self._inserts, *self._samples):
                turn.wake()

    def info(self) -> TableInfo:
        """How the table is, and how many wait for it."""
        with self._lock:
            waiting = len(self._inserts), len(self._samples)
            return replace(
                self.table.info(), waiting_inserts=waiting[0], waiting_samples=waiting[1]
            )

    def state(self) -> dict[str, Any]:
        """What is saved. Callers wait only while the list of items is copied, not the items' data."""
        with self._lock:
            limiter = self.table.rate_limiter
            items = [(i.key, i.priority, i.times_sampled, i.data) for i in self.table.items()]
            counts = limiter.inserts, limiter.samples, limiter.deletes
            diffs = limiter.lowest_diff, limiter.highest_diff
            inserted = list(self._inserted)
            return {"items": items, "counts": (*counts, diffs), "inserted": inserted}

    def refill(
        self, items: Iterable[TableItem], counts: Iterable[Any], inserted: Iterable[int]
    ) -> None:
        """Takes up what `state` gave."""

        def refill() -> None:
            self.table.refill(items, *counts)
            self._inserted = OrderedDict.fromkeys(inserted)

        self.change(refill)

    def _wake(self) -> None:
        """Wakes the first in each line if its turn has come. Called with the lock."""
        for line in (self._inserts, self._samples):
            if line and line[0].may():
                line[0].wake()


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
        self._windows: dict[bytes, tuple[Window, callers.Caller | None]] = {}
        self._lock = threading.Lock()
        me = context.try_current()
        if me is not None:
            for number, table in enumerate(tables):
                table.seed(me.seed + number + (me.attempt << 32))
            me.stop.add_handler(self.stop)

    def insert(
        self,
        writer: bytes,
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

    def sample(self, table: str, most: int, timeout_s: float | None) -> Any:
        """Infos of one item or more, up to `most`, and their data in groups of one signature."""
        served = self._table(table)
        action = served.sampling(most)
        found = served.try_do(action)
        return _answer(found) if found else self._sample_later(served, action, timeout_s)

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

    def forget(self, writer: bytes) -> None:
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

    def _window(self, writer: bytes) -> Window:
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


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


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
