"""Lists, tuples and dicts of arrays arrive as by plain pickle."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launchpad.courier.codec import nests, pickling
from tests.courier.test_arrays import any_arrays, assert_same

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary()
)
NESTS = st.recursive(
    st.one_of(SCALARS, any_arrays()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(SCALARS, inner, max_size=4),
    ),
    max_leaves=8,
)


def travel(value: Any) -> Any:
    body, views = pickling.encode(value)
    return pickling.loads(body, [bytearray(view) for view in views])


def assert_alike(found: Any, wanted: Any) -> None:
    assert type(found) is type(wanted)
    if isinstance(wanted, np.ndarray):
        assert_same(found, travel(wanted))
        assert found.flags.aligned
    elif isinstance(wanted, dict):
        assert list(found) == list(wanted)
        for key in wanted:
            assert_alike(found[key], wanted[key])
    elif isinstance(wanted, list | tuple):
        assert len(found) == len(wanted)
        for each, other in zip(found, wanted, strict=True):
            assert_alike(each, other)
    else:
        assert found == wanted


@settings(max_examples=60, deadline=None)
@given(NESTS)
def test_any_nest_arrives_as_it_is(value: Any) -> None:
    assert_alike(travel(value), value)
    body, views = pickling.encode(value)
    assert_alike(pickle.loads(body, buffers=[bytearray(view) for view in views]), value)
    call, views = pickling.encode_call((value, 1), {"name": value})
    args, kwargs = pickling.loads(call, [bytearray(view) for view in views or ()])
    assert_alike(args[0], value)
    assert args[1] == 1
    assert_alike(kwargs["name"], value)


def test_a_nest_of_small_arrays_is_a_skeleton_and_their_bytes() -> None:
    weights = {"layers": [np.ones((3, 4), np.float32), np.zeros(4)], "step": 7}

    body, views = pickling.encode(weights)
    first, second = pickling.loads(body), pickling.loads(body)

    assert body.startswith(nests.START)
    assert not views
    first["layers"][0][:] = 5  # its own, and nobody else's
    assert first["layers"][1].tolist() == [0, 0, 0, 0]
    assert second["layers"][0].tolist() == np.ones((3, 4)).tolist()


array = np.arange(3)
shared = [array]
loop: list[Any] = [array]
loop.append(loop)
OTHER_VALUES = {
    "the same array twice": [array, array],
    "the same list twice": [shared, shared],
    "a list in itself": loop,
    "a scalar of numpy": [array, np.float64(1)],
    "a set": [array, {1, 2}],
    "a key that is no scalar": {"a": array, ("key",): 1},
    "many values": [array, *range(1000)],
    "a large array": [np.zeros(100_000), array],
    "objects": [np.array([None]), array],
    "no array": [1, "two", {"three": (4,)}],
    "nothing": [],
}


@pytest.mark.parametrize("what", OTHER_VALUES)
def test_other_values_are_for_pickle_and_keep_what_they_are(what: str) -> None:
    value = OTHER_VALUES[what]
    assert nests.encode(value) is None

    arrived = travel(value)

    assert type(arrived) is type(value)
    assert len(arrived) == len(value)
    if value and isinstance(value, list) and len(value) == 2 and value[0] is value[1]:
        assert arrived[0] is arrived[1]
    if value is loop:
        assert arrived[1] is arrived


def test_a_nest_as_deep_as_the_stack_is_for_pickle_which_says_so() -> None:
    deep: list[Any] = [array]
    for _ in range(10_000):
        deep = [deep]

    assert nests.encode(deep) is None
