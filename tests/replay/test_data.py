"""What is inserted is what is sampled: structures, dtypes and shapes; bytes are shared, and saved once."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from launchpad import replay
from launchpad.courier.trees import flatten, spec_of, unflatten
from launchpad.replay import columns
from launchpad.replay.columns import Signature
from launchpad.replay.rows import Window, join, pack, unpack
from tests.replay.conftest import Serve


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass(frozen=True)
class Step:
    observation: Any
    extras: dict[str, Any]


class Point(tuple[Any, ...]):
    """A tuple with a constructor of its own."""

    def __new__(cls, x: Any, y: Any) -> Point:
        return super().__new__(cls, (x, y))


class Path(list[Any]):
    """A list with a constructor of its own."""

    def __init__(self, first: Any, *others: Any) -> None:
        super().__init__([first, *others])


LEAVES = arrays.arrays(
    st.sampled_from(["u1", "<i4", "<f4", "<f8", "?", "<M8[s]", "<c8"]),
    arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
STRUCTURES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.text(max_size=3), inner, min_size=1, max_size=3),
        st.builds(Pair, inner, inner),
        st.builds(Point, inner, inner),
        st.builds(Path, inner),
        st.builds(Step, inner, st.dictionaries(st.integers(0, 3), inner, max_size=2)),
    ),
    max_leaves=6,
)


def same(first: Any, second: Any) -> bool:
    ours: list[Any] = []
    theirs: list[Any] = []
    if flatten(first, ours) != flatten(second, theirs):
        return False
    return all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in zip(ours, theirs, strict=True)
    )


@given(value=STRUCTURES, n=st.integers(1, 3))
def test_items_that_are_joined_are_stacked_as_they_were(value: Any, n: int) -> None:
    leaves, found = columns.arrays_of(value)
    signature = Signature(found, tuple(spec_of(leaf) for leaf in leaves))
    row = Window().row(b"", [columns.buffer_of(leaf) for leaf in leaves])

    joined = [bytearray(memoryview(each)) for each in join([row] * n)]
    decoded = columns.decode_signature(columns.encode_signature(signature))
    stacked = columns.stacked(decoded, joined, n)

    for i in range(n):
        assert same(unflatten(decoded.structure, (column[i] for column in stacked)), value)


def test_any_structure_comes_back_and_numbers_are_arrays(serve: Serve) -> None:
    client = serve(replay.Table.queue("t", 10))
    items = [
        {"a": Step(np.arange(6).reshape(2, 3), {"x": 1.5}), "b": [True, (np.int8(3),)]},
        np.zeros((0, 4), np.float32),
        Pair(np.ones((300, 300), np.float32)[::2], np.asfortranarray(np.eye(90))),
    ]
    for item in items:
        client.insert(item, {"t": 1.0})

    found = [each.data for each in client.sample("t", len(items))]

    assert found[0]["a"].observation.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (found[0]["a"].extras["x"], found[0]["b"]) == (1.5, [True, (3,)])
    assert (found[1].shape, found[1].dtype) == ((0, 4), np.float32)
    assert found[2].left.shape == (150, 300)
    assert np.array_equal(found[2].right, np.eye(90))
    found[2].right[0] = 7  # it is the caller's own


def test_a_batch_is_one_array_for_each_leaf_with_what_is_known_of_each_item(serve: Serve) -> None:
    client = serve(replay.Table("t", replay.Fifo(), replay.Fifo(), 10))
    for i in range(3):
        client.insert({"o": np.full((200, 200), i, np.float32), "r": i}, {"t": 0.5 + i})

    batch = client.sample_batch("t", 2)

    assert batch.data["o"].shape == (2, 200, 200)
    assert batch.data["r"].tolist() == [0, 0]
    assert batch.info.priority.tolist() == [0.5, 0.5]
    assert batch.info.times_sampled.tolist() == [1, 2]
    assert batch.info.table_size.tolist() == [3, 3]
    assert batch.info.probability.tolist() == [1.0, 1.0]
    batch.data["o"][0] = 7  # it is the caller's own
    assert client.sample_batch("t", 1).data["o"].max() == 0


def test_items_whose_signatures_differ_in_bytes_are_stacked_in_their_order(serve: Serve) -> None:
    client = serve(replay.Table.queue("t", 10))
    signature = Signature((dict, ("a",), (None,), ("a",)), (("|u1", ()),))
    encodings = [pickle.dumps(tuple(signature), protocol) for protocol in (4, 5)]
    for n in range(6):
        row = encodings[n % 2], [bytes([n])]
        client.send(("", 0, [], [row], [("t", client.new_key(), float(n), 0)]), None)

    batch = client.sample_batch("t", 6)

    assert batch.data["a"].tolist() == batch.info.priority.tolist() == [*range(6)]


def test_items_are_stacked_whatever_order_their_dicts_were_filled_in(serve: Serve) -> None:
    client = serve(replay.Table.queue("t", 10))
    one = {"b": 1, "a": None, "c": 0.5}
    for n in range(2):
        for item in (one, dict(reversed(one.items()))):
            client.insert({**item, "b": n}, {"t": 1.0})

    each = client.sample("t", 2)
    batch = client.sample_batch("t", 2)

    assert [[*sample.data] for sample in each] == [["b", "a", "c"], ["c", "a", "b"]]
    assert [sample.data["c"] for sample in each] == [0.5, 0.5]
    assert (batch.data["b"].tolist(), batch.data["a"]) == ([1, 1], None)
    assert batch.data["c"].tolist() == [0.5, 0.5]


def test_steps_of_a_writer_may_have_dicts_filled_in_another_order(serve: Serve) -> None:
    client = serve(replay.Table.queue("t", 10))
    steps = [{"b": 1, "a": 0.5}, {"b": 2, "a": 1.5}, {"a": 2.5, "b": 3}]
    with client.trajectory_writer(3) as writer:
        for step in steps:
            writer.append(step)
        writer.create_item("t", 1.0, num_steps=3)

    found = client.sample("t")[0].data

    assert (found["b"].tolist(), found["a"].tolist()) == ([1, 2, 3], [0.5, 1.5, 2.5])


def test_equal_signatures_are_equal_bytes_whichever_of_their_strings_are_one_object() -> None:
    def encoded(*dtypes: str) -> bytes:
        columns.encode_signature.cache_clear()  # as in another process
        specs = tuple((dtype, (3,)) for dtype in dtypes)
        return columns.encode_signature(Signature((tuple, 2, (None, None), ()), specs))

    dtype = np.dtype("<f4").str

    assert encoded(dtype, dtype) == encoded(dtype, "".join(["<", "f4"]))


def test_items_that_differ_cannot_be_stacked_and_can_be_sampled_one_by_one(serve: Serve) -> None:
    client = serve(replay.Table.queue("t", 10))
    for n in (2, 3, 2):
        client.insert(np.arange(n), {"t": 1.0})

    assert [each.data.tolist() for each in client.sample("t", 3)] == [[0, 1], [0, 1, 2], [0, 1]]

    for n in (2, 3):
        client.insert(np.arange(n), {"t": 1.0})
    with pytest.raises(ValueError, match="cannot be stacked"):
        client.sample_batch("t", 2)


@pytest.mark.parametrize(
    ("item", "says"),
    [
        ({"a": 1, "b": [object()]}, r"\['b'\]\[0\] is a object of dtype object"),
        (Step(1, {"x": (2, {3})}), r"\.extras\['x'\]\[1\] is a set"),
        ({}, "at least one array"),
        ({"a": None}, "at least one array"),
        (Pair(1, np.zeros(2, "i4,f4")), r"\.right is a ndarray"),
    ],
)
def test_what_is_no_array_is_refused_with_where_it_is(item: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        columns.arrays_of(item)


def test_bytes_that_items_share_are_pickled_once() -> None:
    window = Window()
    window.add(0, 10, [bytes(1_000_000)])
    rows = [window.row(b"s", [(0, first, first + 5)]) for first in range(5)]

    rows.append(window.row(b"other", [(0, 9, 10), b"inline"]))

    pickled = pickle.dumps(pack(rows), 5)
    restored = unpack(pickle.loads(pickled))

    assert len(pickled) < 1_100_000
    assert [row[0] for row in restored] == [b"s"] * 5 + [b"other"]
    assert bytes(restored[5][1][1][0][0].view) == b"inline"
    assert len({id(row[1][0][0][0]) for row in restored}) == 1
    assert [memoryview(each).nbytes for each in join(restored[:5])] == [5 * 500_000]
