"""A table joins selectors and a limiter: what is in it, what goes, and what it counts."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import launchpad as lp
from launchpad import replay
from launchpad.replay.table import Table


class TableMachine(RuleBasedStateMachine):
    """Whatever is done to a table, in whatever order: its bounds hold, and it is like a plain dict."""

    @initialize(
        sampler=st.sampled_from([replay.Uniform(), replay.Prioritized(0.5), replay.Fifo()]),
        remover=st.sampled_from([replay.Fifo(), replay.Lifo(), replay.MinHeap()]),
        max_size=st.integers(3, 8),
        max_times_sampled=st.integers(0, 3),
        per_insert=st.sampled_from([0.25, 1.0, 3.0]),
        min_size=st.integers(1, 3),
        room=st.floats(1.0, 3.0),
    )
    def begin(
        self,
        sampler: replay.Selector,
        remover: replay.Selector,
        max_size: int,
        max_times_sampled: int,
        per_insert: float,
        min_size: int,
        room: float,
    ) -> None:
        buffer = room * max(1.0, per_insert)
        limiter = replay.SampleToInsertRatio(per_insert, min_size, buffer)
        self.table = Table("t", sampler, remover, max_size, max_times_sampled, limiter)
        self.next_key = 0
        self.times: dict[int, int] = {}

    @precondition(lambda self: self.table.can_insert())
    @rule(priority=st.floats(0, 10))
    def insert(self, priority: float) -> None:
        was_full = len(self.table) == self.table.max_size
        self.table.insert(self.next_key, priority, f"data {self.next_key}")
        self.times[self.next_key] = 0
        self.next_key += 1
        if was_full:
            (gone,) = [key for key in self.times if key not in self.table]
            del self.times[gone]
        limiter = self.table.rate_limiter
        if len(self.table) > limiter.min_size_to_sample:
            assert limiter.diff <= limiter.max_diff

    @precondition(lambda self: self.table.can_sample())
    @rule()
    def sample(self) -> None:
        size = len(self.table)
        assert size >= self.table.rate_limiter.min_size_to_sample
        found = self.table.sample()
        self.times[found.key] += 1
        assert found.data == f"data {found.key}"
        assert found.times_sampled == self.times[found.key]
        assert found.table_size == size
        assert 0 <= found.probability <= 1
        if found.times_sampled == self.table.max_times_sampled:
            del self.times[found.key]
        assert self.table.rate_limiter.diff >= self.table.rate_limiter.min_diff

    @rule(key=st.integers(0, 20), priority=st.floats(0, 10))
    def update(self, key: int, priority: float) -> None:
        assert self.table.update(key, priority) == (key in self.times)

    @rule(key=st.integers(0, 20))
    def delete(self, key: int) -> None:
        assert self.table.delete(key) == (self.times.pop(key, None) is not None)

    @rule()
    def save_and_refill(self) -> None:
        limiter = self.table.rate_limiter
        items, counts = self.table.items(), (limiter.inserts, limiter.samples, limiter.deletes)
        self.table.refill(items, *counts)

    @invariant()
    def it_has_what_it_should(self) -> None:
        if not hasattr(self, "table"):
            return
        info = self.table.info()
        assert self.table.can_insert() or self.table.can_sample()
        assert {item.key: item.times_sampled for item in self.table.items()} == self.times
        assert len(self.table.sampler) == len(self.table.remover) == info.size == len(self.times)
        assert info.size == info.inserts - info.deletes <= info.max_size


TestTable = TableMachine.TestCase


def filled(table: Table, n: int) -> Table:
    for key in range(n):
        table.insert(key, float(key), key)
    return table


def fifo(max_size: int, max_times_sampled: int = 0) -> Table:
    return Table("t", replay.Fifo(), replay.Fifo(), max_size, max_times_sampled)


def test_a_queue_gives_its_items_once_in_their_order_and_a_stack_the_newest_first() -> None:
    queue, stack = filled(Table.queue("q", 3), 3), filled(Table.stack("s", 3), 3)

    assert [queue.can_insert(), stack.can_insert()] == [False, False]
    assert [queue.sample().data for _ in range(3)] == [0, 1, 2]
    assert [stack.sample().data for _ in range(3)] == [2, 1, 0]
    assert [queue.can_sample(), len(queue)] == [False, 0]


def test_tables_do_not_share_the_selectors_that_they_are_given() -> None:
    selector = replay.Fifo()

    first, second = (filled(Table(name, selector, selector, 2), 3) for name in ("a", "b"))

    assert [item.key for item in first.items()] == [item.key for item in second.items()] == [1, 2]
    assert len(selector) == 0


def test_one_that_is_refilled_has_what_its_own_bounds_leave() -> None:
    before, small, once = filled(fifo(5), 5), fifo(2), fifo(5, max_times_sampled=2)
    for _ in range(4):
        before.sample()

    small.refill(before.items(), 5, 4, 0)
    once.refill(before.items(), 5, 4, 0)

    assert [item.key for item in small.items()] == [3, 4]
    assert once.sample().times_sampled == 5  # more often than it may be now: it goes
    assert [item.key for item in once.items()] == [1, 2, 3, 4]


def test_a_reset_table_begins_anew() -> None:
    table = filled(Table("t", replay.Uniform(), replay.Fifo(), 5, 0, replay.MinSize(2)), 4)

    table.reset()

    assert (len(table), table.can_sample(), table.info().inserts) == (0, False, 0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"max_size": 0}, "max_size >= 1"),
        ({"max_size": math.nan}, "max_size >= 1"),
        ({"max_times_sampled": -1}, "max_times_sampled >= 0"),
        ({"name": ""}, "has a name"),
        ({"sampler": "uniform"}, "the sampler of table 't' is a Selector"),
        ({"rate_limiter": 3}, "the rate_limiter"),
        ({"rate_limiter": replay.MinSize(11)}, "could never be sampled"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: dict[str, Any], says: str) -> None:
    good = {"name": "t", "sampler": replay.Uniform(), "remover": replay.Fifo(), "max_size": 10}

    with pytest.raises((lp.DefinitionError, TypeError), match=says):
        Table(**{**good, **arguments})


def test_a_priority_that_cannot_be_taken_changes_nothing() -> None:
    table = filled(Table("t", replay.Prioritized(1.0), replay.Fifo(), 3), 3)

    with pytest.raises(ValueError, match="finite"):
        table.insert(9, -1.0, "new")

    assert (len(table), 9 in table, table.info().inserts) == (3, False, 3)
