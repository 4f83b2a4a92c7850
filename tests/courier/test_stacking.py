"""Stacking: many values as one, and back."""

from __future__ import annotations

import collections
import enum
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from launchpad.courier.batching.stacking import are_alike, describe, difference, stack, unstack
from tests.courier.conftest import begin_source


class Step(NamedTuple):
    observation: Any
    reward: Any


@dataclass(frozen=True, slots=True)
class Frozen:
    state: Any
    action: Any


@dataclass
class Checked:
    number: float

    def __post_init__(self) -> None:
        assert isinstance(self.number, float)


@attrs.frozen
class Attrs:
    state: Any


class Colour(enum.IntEnum):
    RED = 1
    BLUE = 2


def arrays_alike() -> st.SearchStrategy[st.SearchStrategy[Any]]:
    """Strategies, each for arrays of one dtype and shape."""
    dtypes = st.sampled_from(["f4", "f8", "i1", "i8", "?", "c8", "M8[s]", "U3", "S2", ">f4"])
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
    return st.builds(hnp.arrays, dtypes, shapes)


LEAVES = st.one_of(
    st.sampled_from(
        [
            st.integers(-(2**63), 2**63 - 1),
            st.floats(),
            st.complex_numbers(),
            st.booleans(),
            st.text(max_size=3),
            st.binary(max_size=3),
            st.lists(st.integers(), max_size=3),
            st.none(),
            st.sampled_from(Colour),
            st.builds(object),
        ]
    ),
    arrays_alike(),
)


def structures(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=3).map(lambda each: st.tuples(*each)),
        st.dictionaries(st.text(max_size=2), inner, max_size=3).map(st.fixed_dictionaries),
        st.tuples(inner, inner).map(lambda each: st.builds(Step, *each)),
        st.tuples(inner, inner).map(lambda each: st.builds(Frozen, *each)),
        inner.map(lambda each: st.builds(Attrs, each)),
    )


KINDS = st.recursive(LEAVES, structures, max_leaves=6)  # strategies, each for values that stack


@st.composite
def values_alike(draw: st.DrawFn) -> list[Any]:
    return draw(st.lists(draw(KINDS), min_size=1, max_size=5))


def is_same(one: Any, other: Any) -> bool:
    """Equal, arrays by content, NaN like NaN."""
    if isinstance(one, tuple | Frozen | Attrs | dict):
        ours, theirs = _parts(one), _parts(other)
        return (
            type(one) is type(other)
            and ours.keys() == theirs.keys()
            and all(is_same(ours[key], theirs[key]) for key in ours)
        )
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other, equal_nan=one.dtype.kind in "fcmM")
    return bool(one == other or (one != one and other != other))


def _parts(value: Any) -> dict[Any, Any]:
    if isinstance(value, dict):
        return value
    if isinstance(value, tuple):
        return dict(enumerate(value))
    return {name: getattr(value, name) for name in type(value).__annotations__}


@given(values_alike())
def test_values_that_stack_are_described_alike_and_taken_apart_again(values: list[Any]) -> None:
    back = unstack(stack(values), len(values))

    assert len(back) == len(values)
    assert all(is_same(one, other) for one, other in zip(values, back, strict=True))
    assert are_alike(values)
    assert len({describe(value) for value in values}) == 1
    assert all(difference(values[0], value, "x") == "" for value in values)


@given(KINDS.flatmap(lambda it: it), KINDS.flatmap(lambda it: it))
def test_a_difference_is_found_exactly_where_descriptions_differ(one: Any, other: Any) -> None:
    is_alike = describe(one) == describe(other)

    assert (difference(one, other, "x") == "") == is_alike
    assert are_alike([one, other]) == is_alike


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, 2], "int64"),
        ([2**53 + 1, np.int64(3)], "int64"),
        ([1.0, np.float64(2.5)], "float64"),
        ([1.0j, np.complex128(2)], "complex128"),
        ([True, np.bool_(False)], "bool"),
        ([np.float32(1), np.float32(2)], "float32"),
        ([Colour.RED, 2], "int64"),
    ],
)
def test_numbers_become_an_array(values: list[Any], dtype: str) -> None:
    stacked = stack(values)

    assert len({describe(value) for value in values}) == 1
    assert stacked.dtype == dtype
    assert stacked.tolist() == values


def test_arrays_get_a_new_first_axis_wherever_they_are() -> None:
    values = [{"obs": np.full((2, 3), i, np.float32), "done": i > 1} for i in range(4)]

    stacked = stack(values)

    assert stacked["obs"].shape == (4, 2, 3)
    assert stacked["obs"].dtype == np.float32
    assert stacked["done"].tolist() == [False, False, True, True]


def test_lists_strings_and_objects_become_lists_and_none_stays_none() -> None:
    stacked = stack([([1, 2], "a", b"x", {1}, None), ([], "bc", b"", {2}, None)])

    assert stacked == ([[1, 2], []], ["a", "bc"], [b"x", b""], [{1}, {2}], None)
    assert unstack(None, 3) == [None, None, None]


def test_structures_without_leaves_are_given_to_everybody() -> None:
    first, second = unstack(((), {}), 2)

    assert first == second == ((), {})
    assert first[1] is not second[1]


def test_structures_keep_their_types_and_no_constructor_runs() -> None:
    one, other = collections.OrderedDict(b=1, a=2), collections.defaultdict(int, c=3)
    value = (one, other, Step(1, 2), Attrs(3), Checked(1.0))

    stacked = stack([value, value])

    assert [type(each) for each in stacked] == [type(each) for each in value]
    assert list(stacked[0]) == ["b", "a"]
    assert stacked[1]["missing"] == 0
    assert stacked[4].number.tolist() == [1.0, 1.0]


def test_dicts_may_have_their_keys_in_any_order() -> None:
    one, other = {"a": 1, "b": "x"}, {"b": "y", "a": 2}

    assert describe(one) == describe(other)
    assert stack([one, other])["b"] == ["x", "y"]


def test_arrays_of_objects_are_stacked_and_masked_ones_left_for_the_mask_would_be_lost() -> None:
    objects = [np.array([{1}, [2, 3]], dtype=object)] * 2
    masked = [np.ma.masked_array([1, 2], mask=[i, 1]) for i in (0, 1)]

    assert stack(objects).shape == (2, 2)
    assert stack(masked) == masked


@pytest.mark.parametrize(
    ("expected", "given", "words"),
    [
        (
            {"obs": np.zeros(3, "f4")},
            {"obs": np.zeros(4, "f4")},
            r"x\['obs'\]: an array of float32 with shape \(3,\) expected, .* shape \(4,\) given",
        ),
        ((np.zeros(3, "f4"),), (np.zeros(3, "f8"),), r"x\[0\]: .* float32 .*, .* float64 .* given"),
        ((1, 2), (1,), "x: a tuple of 2 expected, a tuple of 1 given"),
        ({"a": 1}, {"b": 1}, "x: without 'a' and with 'b', unlike the others"),
        (Step(1, 2), Step(1, None), r"x\.reward: a value of type int expected, None given"),
        (Frozen(1, {"k": "v"}), Frozen(1, {"k": b"v"}), r"x\.action\['k'\]: .* str .* bytes given"),
        (Step(1, 2), (1, 2), r"x: a value of type .*Step expected, a tuple of 2 given"),
        (1, 2**63, "x: a value of type int expected, an int that 64 bits cannot hold given"),
        (2**53 + 1, 0.5, "x: a value of type int expected, a value of type float given"),
        (np.float64(0.5), np.int64(1), r"x: .* float64 .* expected, .* int64 .* given"),
        (0.5, 1j, "x: a value of type float expected, a value of type complex given"),
        (True, 1, "x: a value of type bool expected, a value of type int given"),
        ({"a": 1}, {}, "x: without 'a', unlike the others"),
        ([1], (1,), "x: a list of 1 expected, a tuple of 1 given"),
    ],
)
def test_a_difference_is_told_with_its_path(expected: Any, given: Any, words: str) -> None:
    assert re.fullmatch(words, difference(expected, given, "x"))


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (np.zeros((3, 2)), r"result is an array of float64 with shape \(3, 2\), .* each of 4"),
        ([1, 2], r"result is a list of 2, where one item for each of 4"),
        (np.float64(3), r"result is an array of float64 with shape \(\), where one item"),
        (
            {"q": (None, "abc")},
            r"result\['q'\]\[1\] is a value of type str, which cannot be divided",
        ),
        (7, r"result is a value of type int, which cannot be divided among 4 requests. Return"),
    ],
)
def test_what_cannot_be_taken_apart_is_named(result: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        unstack(result, 4)


def test_nothing_heavy_is_imported_for_values_that_need_none(python) -> None:
    source = """
from launchpad.courier.batching.stacking import stack, unstack
assert unstack(stack([("a", None), ("b", None)]), 2) == [("a", None), ("b", None)]
print({"numpy", "torch", "jax"} & set(sys.modules))
"""
    with python(begin_source() + source) as process:
        assert process.stdout.read() == "set()\n"


def test_torch_tensors_become_one_tensor_and_rows_of_their_own() -> None:
    torch = pytest.importorskip("torch")
    values = [(torch.full((2,), float(i)), "x") for i in range(3)]

    stacked = stack(values)
    rows = unstack(stacked, 3)

    assert len({describe(value) for value in values}) == 1
    assert isinstance(stacked[0], torch.Tensor)
    assert stacked[0].shape == (3, 2)
    assert [row[0].tolist() for row in rows] == [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]
    assert all(row[0].untyped_storage().nbytes() == 8 for row in rows)  # not that of the batch
    assert "shape (2,) on cpu expected" in difference(values[0], (torch.zeros(3), "x"), "x")


def test_row_08_jax_arrays_also_with_numpys_become_one_and_their_rows_are_numpys() -> None:
    jax = pytest.importorskip("jax")
    ours, theirs = np.full((2,), 1, np.float32), jax.numpy.full((2,), 2, np.float32)

    for values in [(theirs, theirs), (ours, theirs), (theirs, ours)]:
        stacked = stack(values)
        rows = unstack(stacked, 2)

        assert are_alike(values)
        assert isinstance(stacked, jax.Array)
        assert [row.tolist() for row in rows] == [value.tolist() for value in values]
        assert all(isinstance(row, np.ndarray) for row in rows)
    assert not are_alike([ours, jax.numpy.full((2,), 2, np.int32)])
    assert not are_alike([ours, jax.numpy.full((3,), 2, np.float32)])
