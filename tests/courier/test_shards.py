"""`scatter` and `sharded`: a call of many clients in which each has its part."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import Any

import numpy as np
import pytest

import launchpad as lp
from tests.courier.conftest import awaited

SIZE = 10


class Shard:
    """A part of a vector, and rows by name."""

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.weights = np.arange(size) + 100.0 * number
        self.rows: dict[Any, Any] = {}
        self.asked: list[Any] = []

    def step(self, part: Any, *, scale: int = 1) -> tuple[int, Any]:
        if isinstance(part, str) and part == "bad":
            raise LookupError(f"{self.number} has none")
        return self.number, part * scale

    def pull(self, keys: Any) -> Any:
        self.asked.append(keys)
        return self.weights[keys]

    def push(self, keys: Any, values: Any, *, rate: Any = 1.0) -> None:
        self.weights[keys] += np.asarray(values) * np.sum(rate)

    def push_of(self, worker: str, clock: list[int], keys: Any, values: Any) -> Any:
        self.push(keys, values)
        return [f"{worker} at {clock}: {self.number}"] * len(keys), self.weights[keys], None

    def put(self, names: Any, values: Any) -> None:
        if isinstance(names, str):
            self.rows[names] = values
        else:
            self.rows.update(zip(names, values, strict=True))

    def get(self, names: Any) -> Any:
        if isinstance(names, str):
            return self.rows[names]
        return [self.rows[name] for name in names]

    def find(self, names: list[str]) -> dict[str, Any]:
        return {name: self.rows[name] for name in names if name in self.rows}

    def count(self, keys: Any) -> int:
        return len(keys)

    def same(self, keys: Any) -> dict[str, int]:
        return {"same": self.number}

    def ragged(self, keys: Any) -> Any:
        return np.zeros((len(keys), 1 + self.number))

    def mixed(self, keys: Any) -> Any:
        return np.zeros(len(keys), "U3" if self.number else int)

    def typed(self, keys: Any, *, values: Any) -> Any:
        return np.full(len(keys), values[self.number])

    def total_of(self, numbers: Any, key: Any = None) -> int:
        return sum(numbers)

    def fail(self, keys: Any) -> None:
        raise LookupError(f"{self.number} has none")


@pytest.fixture
def shards() -> list[Shard]:
    bounds = [lp.RangePartition(SIZE).bounds(i, 3) for i in range(3)]
    return [Shard(i, high - low) for i, (low, high) in enumerate(bounds)]


@pytest.fixture
def clients(shards, serve, connect, short_directory) -> list[Any]:
    servers = [serve(f"unix:{short_directory}/{shard.number}") for shard in shards]
    for server, shard in zip(servers, shards, strict=True):
        server.bind_object(shard)
    return [connect(server.address) for server in servers]


@pytest.fixture
def params(clients) -> Any:
    return lp.sharded(clients, lp.RangePartition(SIZE))


@pytest.fixture
def table(clients) -> Any:
    return lp.sharded(clients, lp.HashPartition())


def whole(shards: list[Shard]) -> Any:
    return np.concatenate([shard.weights for shard in shards])


# --- scatter -------------------------------------------------------------------------------------


def test_scatter_gives_each_client_its_part_and_the_rest_to_all(clients) -> None:
    group = lp.scatter(clients)

    assert group.step(lp.parts([1, 2, 3]), scale=10) == [(0, 10), (1, 20), (2, 30)]
    assert group.step("x", scale=lp.parts(i for i in range(3))) == [(0, ""), (1, "x"), (2, "xx")]
    answers = group.step(lp.parts(np.array_split(np.arange(7), 3)))
    assert [list(part) for _, part in answers] == [[0, 1, 2], [3, 4], [5, 6]]


@pytest.mark.parametrize(
    ("argument", "error", "words"),
    [
        (lp.parts([1, 2]), ValueError, "2 parts for 3 clients"),
        ([1, 2, 3], TypeError, "give it lp.parts"),
    ],
)
def test_a_scatter_without_a_part_for_each_is_refused(clients, argument, error, words) -> None:
    group = lp.scatter(clients)

    for ask in (group.step, group.futures.step, group.aio.step, partial(lp.submit, group.step)):
        with pytest.raises(error, match=words):
            ask(argument)


def test_parts_keys_and_partitions_are_refused_where_they_mean_nothing(clients) -> None:
    with pytest.raises(TypeError, match=r"of a call of lp\.scatter"):
        clients[0].step(lp.parts([1, 2, 3]))
    with pytest.raises(TypeError, match=r"of a call of lp\.sharded"):
        clients[0].step(lp.keys([1, 2, 3]))
    with pytest.raises(TypeError, match=r"RangePartition\(size\) or lp\.HashPartition\(\), not 10"):
        lp.sharded(clients, 10)  # type: ignore[arg-type]


# --- sharded: ranges -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keys",
    [
        slice(None),
        slice(2, 9),
        range(5),
        [7, 1, 1, 9],
        np.array([0, 4, 4, 9]),
        np.array([9, 0, 5, 3, 3], np.uint8),
        np.array([6]),
        np.array([], int),
    ],
)
def test_a_pull_is_joined_in_the_order_of_its_keys(params, shards, keys) -> None:
    everything = whole(shards)

    pulled = params.pull(keys)

    expected = everything[list(keys) if isinstance(keys, range) else keys]
    np.testing.assert_array_equal(pulled, expected)


def test_only_shards_that_have_keys_are_asked_and_count_theirs_from_0(params, shards) -> None:
    assert params.pull([9, 4, 8]).tolist() == [202, 100, 201]
    assert [params.pull(5), params.pull(np.int64(9))] == [101.0, 202.0]

    assert [shard.asked for shard in shards] == [[], [[0], 1], [[2, 1], 2]]


@pytest.mark.parametrize("keys", [slice(1, 9), [8, 1, 5], np.array([0, 9, 3]), [2]])
def test_a_push_gives_each_shard_the_values_of_its_keys(params, shards, keys) -> None:
    expected = whole(shards)
    n = len(expected[keys])
    values = np.arange(n) + 0.5
    expected[keys] += values * 3

    assert params.push(keys, values, rate=[1, 2]) is None

    np.testing.assert_array_equal(whole(shards), expected)


def test_what_stands_before_the_keys_goes_to_all(params) -> None:
    names, weights, nothing = params.push_of("ada", [1, 2, 3], lp.keys([9, 0]), [1.0, 2.0])

    assert names == ["ada at [1, 2, 3]: 2", "ada at [1, 2, 3]: 0"]
    assert weights.tolist() == [203.0, 2.0]
    assert nothing is None


def test_a_sharded_call_can_be_submitted_and_awaited_as_that_of_one_client(params) -> None:
    assert params.futures.pull([9, 0]).result(20).tolist() == [202, 0]
    assert lp.submit(params.pull, [9, 0]).result(20).tolist() == [202, 0]
    assert asyncio.run(awaited(params.aio.pull([9, 0]))).tolist() == [202, 0]
    assert [each.tolist() for each in lp.broadcast([params, params]).pull([1])] == [[1], [1]]


def test_a_sharded_call_that_fails_lists_all_failures(params) -> None:
    with pytest.raises(LookupError, match="0 has none") as caught:
        params.fail([0, 9])

    headline, _, last = caught.value.__notes__[0].splitlines()
    assert headline == "2 of 2 clients of this sharded call failed:"
    assert last.startswith("  2: ")


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (([0, 10], [1, 2]), IndexError, "0 to 9"),
        (([0, 1], np.zeros(3)), ValueError, "2 keys, and an argument after them with 3 entries"),
        ((slice(None), [1]), ValueError, "10 keys, and an argument after them with 1 entries"),
        ((), TypeError, "in one positional argument"),
        ((lp.keys([0]), lp.keys([1])), TypeError, "in one positional argument, and this has 2"),
    ],
)
def test_a_call_that_cannot_be_cut_is_refused(params, shards, arguments, error, words) -> None:
    before = whole(shards)

    for ask in (params.push, params.futures.push, params.aio.push):
        with pytest.raises(error, match=words):
            ask(*arguments)

    np.testing.assert_array_equal(whole(shards), before)


@pytest.mark.parametrize(
    ("method", "error", "words"),
    [
        ("count", TypeError, "the 1 keys of shard 0 were answered with 1 of int"),
        ("same", ValueError, "dicts of two shards have the same key"),
        ("ragged", TypeError, r"shard 0: float64 \(1, 1\); shard 2: float64 \(1, 3\)"),
        ("mixed", TypeError, r"shard 0: int64 \(1,\); shard 2: <U3 \(1,\)"),
    ],
)
def test_results_that_cannot_be_joined_are_an_error(params, method, error, words) -> None:
    with pytest.raises(error, match=words):
        getattr(params, method)([0, 9])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.int64(2**53 + 1), np.uint64(1)),
        (np.int64(2**53 + 1), np.float64(0.5)),
        (np.uint64(2**53 + 1), np.complex128(1j)),
        (np.datetime64("3000", "s"), np.datetime64("2000", "ns")),
    ],
)
def test_numbers_that_no_common_type_holds_as_they_are_cannot_be_joined(params, one, other) -> None:
    with pytest.raises(TypeError, match=re.escape(f"hold every {one.dtype} as it is")):
        params.typed([0, 9], values=[one, None, other])


@pytest.mark.parametrize(
    ("one", "other", "joined"),
    [
        (np.int32(2**31 - 1), np.float32(0.5), "float64"),
        (np.int16(7), np.int64(2**62 + 1), "int64"),
        (np.bool_(True), np.float32(0.5), "float32"),
        (np.float32(0.1), np.complex64(1j), "complex64"),
        (np.datetime64("3000", "s"), np.datetime64("2000", "s"), "datetime64[s]"),
    ],
)
def test_numbers_of_several_types_are_joined_where_each_stays_as_it_is(
    params, one, other, joined
) -> None:
    found = params.typed([0, 9], values=[one, None, other])

    assert found.dtype == joined
    assert list(found) == [one, other]


@pytest.mark.parametrize("numbers", [(x for x in range(3)), map(int, "012"), lp.stream(range(3))])
def test_an_iterator_cannot_be_given_to_several_clients(clients, params, numbers) -> None:
    scatter, broadcast = lp.scatter(clients), lp.broadcast(clients)
    of_parts = lp.parts([numbers, [], numbers])
    calls = [
        *(partial(each.step, numbers) for each in _ways(broadcast)),
        *(partial(each.step, "x", scale=numbers) for each in _ways(broadcast)),
        *(partial(each.step, lp.parts([1, 2, 3]), numbers) for each in _ways(scatter)),
        *(partial(each.step, of_parts) for each in _ways(scatter)),
        *(partial(each.push, [0, 9], [1, 2], rate=numbers) for each in _ways(params)),
    ]

    for call in calls:
        with pytest.raises(TypeError, match="it can be read once"):
            call()
    assert list(numbers) == [0, 1, 2]


def _ways(group: Any) -> tuple[Any, Any, Any]:
    return group, group.futures, group.aio


def test_parts_may_be_iterators_and_one_key_goes_to_one_shard_with_an_iterator(
    clients, params
) -> None:
    assert lp.scatter(clients).total_of(lp.parts([iter([1]), iter([2]), [3]])) == [1, 2, 3]
    assert params.total_of(iter([1, 2]), lp.keys(0)) == 3


def test_rows_are_found_at_the_shards_that_they_were_put_to(table, clients) -> None:
    names = [f"user-{i}" for i in range(20)]
    table.put(names, list(range(20)))
    table.put("ada", 36)
    table.put(np.array(["grace", "barbara"]), np.array([1906, 1939]))

    assert table.get(names[::-1]) == list(range(20))[::-1]
    assert table.get("ada") == 36
    assert table.get(np.array(["barbara", "ada", "grace"])) == [1939, 36, 1906]
    assert table.find(["user-3", "nobody", "user-7"]) == {"user-3": 3, "user-7": 7}
    assert table.get([]) == []
    assert sum(len(found) for found in lp.broadcast(clients).find(names)) == 20
