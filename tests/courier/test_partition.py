"""Partitions: which shard has which keys."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import launchpad as lp
from launchpad.courier.client.partition import Partition, Share, shard_of

SHARDS = st.integers(1, 9)


@st.composite
def ranges(draw: Any) -> tuple[int, int, list[int]]:
    """A size, a number of shards, and keys."""
    size = draw(st.integers(1, 60))
    return size, draw(SHARDS), draw(st.lists(st.integers(0, size - 1)))


def put_together(shares: list[Share], n_keys: int) -> list[Any]:
    """For each key, its shard and what that shard knows it as; every position exactly once."""
    found: list[Any] = [None] * n_keys
    for share in shares:
        assert len(share) == len(range(n_keys)[: len(share)]) > 0
        positions = share.take(list(range(n_keys)))
        for position, key in zip(positions, share.keys, strict=True):
            assert found[position] is None
            found[position] = share.shard, key
    assert None not in found
    return found


@given(st.integers(0, 60), SHARDS)
def test_ranges_of_shards_follow_each_other_and_differ_by_one_at_most(size: int, n: int) -> None:
    partition = lp.RangePartition(size)

    bounds = [partition.bounds(i, n) for i in range(n)]

    assert [low for low, _ in bounds] == [0, *(high for _, high in bounds[:-1])]
    assert bounds[-1][1] == size
    assert [high - low for low, high in bounds] == [
        len(part) for part in np.array_split(np.zeros(size), n)
    ]


@given(ranges())
def test_keys_are_cut_alike_however_they_are_given(given_: tuple[int, int, list[int]]) -> None:
    size, n, keys = given_
    partition = lp.RangePartition(size)

    expected = [partition.locate(key, n) for key in keys]

    for key, (shard, local) in zip(keys, expected, strict=True):
        low, high = partition.bounds(shard, n)
        assert low <= key < high
        assert local == key - low
    assert put_together(partition.cut(keys, n), len(keys)) == expected
    for dtype in (np.int64, np.uint8, np.int16):
        assert put_together(partition.cut(np.array(keys, dtype), n), len(keys)) == expected


@given(ranges(), st.data())
def test_a_slice_is_cut_into_slices(given_: tuple[int, int, list[int]], data: Any) -> None:
    size, n, _ = given_
    start = data.draw(st.integers(0, size))
    stop = data.draw(st.integers(start, size))
    partition = lp.RangePartition(size)

    for keys in (slice(start, stop), range(start, stop)):
        shares = partition.cut(keys, n)

        values = list(range(1000, 1000 + stop - start))
        assert [value for share in shares for value in share.take(values)] == values
        for share in shares:
            assert type(share.keys) is type(keys)
            low, high = partition.bounds(share.shard, n)
            of_shard = np.arange(low, high)[share.keys.start : share.keys.stop]
            assert list(of_shard) == list(np.arange(start, stop)[share.positions])


def test_sorted_keys_are_cut_without_a_copy() -> None:
    shares = lp.RangePartition(10).cut(np.array([1, 1, 4, 9]), 2)

    assert [share.positions for share in shares] == [slice(0, 3), slice(3, 4)]


@pytest.mark.parametrize(
    ("keys", "error", "words"),
    [
        ([3, 10], IndexError, "are 0 to 9, and 10 is not among them"),
        (np.array([3, 10]), IndexError, "0 to 9"),
        (np.array([-1]), IndexError, "0 to 9"),
        (slice(5, 11), IndexError, "0 to 9"),
        (slice(-3, None), IndexError, "0 to 9"),
        (slice(0, 4, 2), ValueError, "has a step"),
        (np.zeros((2, 2), int), ValueError, r"not of shape \(2, 2\)"),
        (np.array([1.0]), TypeError, "are ints, not an array of float64"),
        (["ada"], TypeError, "are ints, not 'ada'"),
    ],
)
def test_keys_that_no_shard_has_are_refused(keys, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        lp.RangePartition(10).cut(keys, 3)


def test_a_shard_that_there_is_not_has_no_bounds() -> None:
    with pytest.raises(IndexError, match="no shard 3 among 3"):
        lp.RangePartition(10).bounds(3, 3)
    with pytest.raises(ValueError, match="how many keys there are, not -1"):
        lp.RangePartition(-1)


@given(
    SHARDS,
    st.lists(st.text() | st.integers() | st.none() | st.tuples(st.text(), st.binary())),
)
def test_a_list_of_keys_is_cut_by_digests(n: int, keys) -> None:
    shares = lp.HashPartition().cut(keys, n)

    assert put_together(shares, len(keys)) == [(shard_of(key, n), key) for key in keys]


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int8, "U8", object])
@pytest.mark.parametrize("n", [3, 300])
def test_an_array_of_keys_is_cut_into_arrays(dtype: Any, n: int) -> None:
    keys = np.array([5, 3, 120, 3, 0, 77]).astype(dtype)

    shares = lp.HashPartition().cut(keys, n)

    assert {share.keys.dtype for share in shares} == {keys.dtype}
    assert put_together(shares, len(keys)) == [(shard_of(key, n), key) for key in keys.tolist()]


def test_a_digest_knows_no_slices() -> None:
    with pytest.raises(TypeError, match="name the keys"):
        lp.HashPartition().cut(slice(3), 2)


@pytest.mark.parametrize("partition", [lp.RangePartition(7), lp.HashPartition()])
def test_partitions_pickle_and_compare(partition: Partition) -> None:
    copied = pickle.loads(pickle.dumps(partition))

    assert copied == partition
    assert copied.cut([3, 5, 1], 2) == partition.cut([3, 5, 1], 2)
