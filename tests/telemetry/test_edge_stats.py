"""Edges as they are gathered: from both ends, and from the other end where one is missing."""

from __future__ import annotations

import math
from typing import Any

import pytest

from launchpad.courier.telemetry import call_stats
from launchpad.courier.telemetry.call_stats import MethodStats
from launchpad.courier.telemetry.counters import MethodCounts
from launchpad.telemetry.edge_stats import Edges, gathered

PLACE = ("a-0", "s-0", "step")


def stats(calls: int, n_bytes: int = 10, errors: int = 0) -> MethodStats:
    counts = MethodCounts()
    for _ in range(calls):
        counts.started += 1
        counts.finish(0.01, n_bytes, 2 * n_bytes)
    counts.errors = errors
    return call_stats.of(counts)


def edges(made: Any = (), served: Any = (), known: Any = (), lacking: Any = ()) -> Edges:
    return gathered(made, served, known, lacking)


def test_counts_of_several_attempts_and_of_both_ends_are_one_row() -> None:
    (row,) = edges(
        made=[(PLACE, stats(3)), (PLACE, stats(4, errors=1))],
        served=[(PLACE, stats(7))],
        known=["a-0"],
    )

    assert (row.caller, row.server, row.method) == PLACE
    assert (row.calls, row.served, row.errors, row.in_flight) == (7, 7, 1, 0)
    assert (row.bytes_sent, row.bytes_received) == (140, 70)
    assert row.waiting_s == pytest.approx(0.07)
    assert 0.008 <= row.p50_s <= row.p99_s <= 0.04
    assert row.is_exact


@pytest.mark.parametrize(
    ("served", "known", "killed", "numbers"),
    [
        ([(PLACE, stats(5))], ["a-0"], "a-0", (5, 5, 50, 100)),
        ([(PLACE, stats(5))], [], "a-0", (5, 5, 50, 100)),
        ([], ["a-0"], "s-0", (3, 0, 60, 30)),
    ],
)
def test_where_one_end_was_killed_the_counts_of_the_other_stand(
    served: Any, known: list[str], killed: str, numbers: tuple[int, ...]
) -> None:
    (row,) = edges(made=[(PLACE, stats(3))], served=served, known=known, lacking=[killed])

    assert (row.calls, row.served, row.bytes_sent, row.bytes_received) == numbers
    assert not row.is_exact


def test_rows_are_chosen_by_worker_or_group_and_added_up() -> None:
    rows = [((f"a-{i}", "s-0", method), stats(i + 1)) for i in range(3) for method in ("x", "y")]
    found = edges(
        made=[*rows, (("ab-0", "s-0", "x"), stats(9))], known=["a-0", "a-1", "a-2", "ab-0"]
    )

    assert [row.caller for row in found.of(caller="a", method="x")] == ["a-0", "a-1", "a-2"]
    assert found.total(caller="a", server="s").calls == 12
    assert found.total(caller="a-1").calls == 4
    assert found.total(caller="nobody").calls == 0
    assert (len(found), found[0].caller) == (7, "a-0")
    assert set(found.to_dicts()[0]) >= {"calls", "waiting_s", "p99_s", "is_exact"}
    assert str(found).splitlines()[1].split()[:4] == ["ab-0", "s-0", "x", "9"]
    assert str(edges()) == "no calls yet"


def test_the_quantiles_of_a_total_are_those_of_all_its_calls() -> None:
    quick, slow, unknown = MethodCounts(), MethodCounts(), MethodCounts()
    for _ in range(9):
        quick.finish(0.001, 0, 0)
    slow.finish(1.0, 0, 0)
    rows = edges(
        made=[
            ((f"a-{i}", "s-0", "step"), call_stats.of(each))
            for i, each in enumerate((unknown, quick, slow))
        ]
    ).rows

    assert 0.0005 <= Edges(rows).total().p50_s <= 0.002
    assert 0.5 <= Edges(rows).total().p99_s <= 2.0
    assert math.isnan(Edges(rows[:1]).total().p99_s)
    assert math.isnan(Edges(()).total().p50_s)
    assert rows[0].to_dict()["p99_s"] is None


def test_between_two_looks_are_the_calls_bytes_and_times_of_that_while() -> None:
    first = gathered([(PLACE, stats(3))], [], ["a-0"], [], period_s=10.0)
    other = ("a-0", "s-0", "other")
    second = gathered([(PLACE, stats(7)), (other, stats(2))], [], ["a-0"], [], period_s=12.0)

    between = second.since(first)

    rows = {row.method: row for row in between}
    assert {method: row.calls for method, row in rows.items()} == {"step": 4, "other": 2}
    assert (rows["step"].calls_per_s, rows["step"].bytes_per_s) == (2.0, 4 * (10 + 20) / 2.0)
    assert sum(rows["step"].buckets) == 4
    assert between.total().calls_per_s == 3.0
    assert second.total().calls_per_s == 9 / 12


def test_counts_that_get_fewer_are_none_in_the_while_between() -> None:
    """As where a killed caller's edge is known by its server's counts, and then by other ones."""
    first = gathered([], [(PLACE, stats(7))], ["a-0"], ["a-0"], period_s=1.0)
    second = gathered([(PLACE, stats(5))], [], ["a-0"], ["a-0"], period_s=2.0)

    row = second.since(first)[0]

    assert (row.calls, row.waiting_s, sum(row.buckets)) == (0, 0, 0)


def test_a_total_is_not_exact_where_an_edge_between_two_that_were_killed_may_be_missing() -> None:
    found = edges(made=[(("b-0", "s-0", "step"), stats(3))], known=["b-0"], lacking=["a-0", "a-1"])

    assert found.lacking == ("a-0", "a-1")
    assert not found.total().is_exact
    assert not found.total(caller="a").is_exact
    assert found.total(caller="b").is_exact
    assert found.total(server="s").is_exact
