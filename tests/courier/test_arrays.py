"""Arrays by description: what arrives is what plain pickle would give."""

from __future__ import annotations

import copyreg
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from launchpad.courier.codec import arrays, pickling, tensors

TYPES = st.one_of(
    arrays_of.scalar_dtypes(),
    st.sampled_from(
        [np.dtype(kind) for kind in ("g", "G", "O", "S7", "U3", "M8[25s]", "m8", "V6")]
    ),
    arrays_of.array_dtypes(),
)


@st.composite
def any_arrays(draw: st.DrawFn) -> Any:
    """Of any type, order and size, strided, reversed, read-only, on both sides of the limit."""
    dtype = draw(TYPES)
    shape = draw(arrays_of.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=20))
    order = draw(st.sampled_from("CF"))
    n = int(np.prod(shape))
    if dtype.hasobject or dtype.kind in "SU":
        texts = np.array([str(i) for i in range(n)], dtype=object)
        array = texts.reshape(shape).astype(dtype, order=order)
    else:
        bits = np.random.default_rng(n).bytes(n * dtype.itemsize)
        flat = np.frombuffer(bits, dtype, count=n) if dtype.itemsize else np.zeros(n, dtype)
        array = np.array(flat.reshape(shape), order=order, copy=True)
    if draw(st.booleans()) and array.ndim:
        array = array[:: draw(st.sampled_from([1, 2, -1]))]
    array.flags.writeable = draw(st.booleans())
    return array


def travel(value: Any, *, by_pickle: bool = False) -> Any:
    body, views = pickling.encode(value)
    buffers = [bytearray(view) for view in views]
    return (pickle.loads if by_pickle else pickling.loads)(body, buffers=buffers)


def assert_same(found: Any, wanted: Any) -> None:
    assert type(found) is type(wanted)
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    assert not found.size or found.strides == wanted.strides
    assert found.flags.writeable == wanted.flags.writeable
    if wanted.dtype.hasobject:
        assert found.tolist() == wanted.tolist()
    else:
        assert found.tobytes() == wanted.tobytes()


@settings(max_examples=60)
@given(any_arrays())
def test_an_array_arrives_as_by_plain_pickle(array: Any) -> None:
    wanted = pickle.loads(pickle.dumps(array, 5))
    if array.dtype.kind in "biufcSUMm":
        # Plain pickle loses the byte order of some, and of text and dates that they are read-only.
        wanted = wanted.astype(array.dtype)
        wanted.flags.writeable = array.flags.writeable or not array.flags.forc

    assert_same(travel(array), wanted)
    assert_same(travel(array), wanted)  # it is known now
    assert_same(travel([array, 1], by_pickle=True)[0], wanted)
    body, views = pickling.encode_call((array,), {})
    (argument,), kwargs = pickling.loads(body, [bytearray(view) for view in views or ()])
    assert_same(argument, wanted)
    assert kwargs == {}


@dataclass
class Batch:
    observations: Any
    infos: dict[str, Any]


@pytest.mark.parametrize("size", [3, arrays.IN_BAND])
def test_wherever_it_stands_it_is_described_once_and_is_private(size: int) -> None:
    array = np.arange(size, dtype=np.int64)
    batch = Batch((array, array), {"again": [array], "number": np.float32(0.1)})

    body, views = pickling.encode(batch)
    first, second = (pickle.loads(body, buffers=list(map(bytearray, views))) for _ in range(2))

    assert b"numpy" not in body
    assert first.observations[0] is first.infos["again"][0]  # as it was
    assert type(first.infos["number"]) is np.float32
    assert first.infos["number"] == np.float32(0.1)
    first.observations[0][:] = 0
    assert np.array_equal(second.observations[1], array)
    assert np.array_equal(array, np.arange(size))


@pytest.mark.parametrize(
    "value",
    [
        np.ma.masked_array([1, 2, 3], [0, 1, 0]),
        np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_plain_array_keeps_its_meaning(value: Any) -> None:
    arrived = travel(value)

    assert type(arrived) is type(value)
    assert arrived.dtype == value.dtype
    assert arrived.tolist() == value.tolist()


@pytest.mark.parametrize("size", [3, arrays.IN_BAND])
def test_metadata_of_a_type_arrives_whatever_has_gone_before(size: int) -> None:
    plain = np.arange(size)
    metres = plain.astype(np.dtype(plain.dtype, metadata={"unit": "m"}))

    for sent in (plain, metres, plain):
        for arrived in (
            travel(sent),
            travel([sent, 1])[0],
            travel({"a": (sent, sent.copy())})["a"][1],
        ):
            assert arrived.dtype.metadata == sent.dtype.metadata
            assert np.array_equal(arrived, sent)


@pytest.mark.parametrize("kind", [*"?bBhHiIlLqQefdgFDG"])
def test_a_scalar_keeps_type_and_bits(kind: str) -> None:
    bits = np.random.default_rng(1).bytes(np.dtype(kind).itemsize)
    value = np.ones(1, kind)[0] if kind == "?" else np.frombuffer(bits, kind)[0]

    arrived = travel(value)

    assert type(arrived) is type(pickle.loads(pickle.dumps(value)))  # long long is long
    assert arrived.tobytes() == value.tobytes()


def test_an_array_that_fails_in_the_middle_leaves_nothing_behind() -> None:
    class Fails:
        def __reduce__(self) -> Any:
            raise RuntimeError("not me")

    with pytest.raises(RuntimeError, match="not me"):
        pickling.encode([np.zeros(10_000), Fails()])

    assert travel([np.zeros(2), "after"])[1] == "after"
    assert pickling.encode(["small"])[1] == []


def test_a_value_that_encodes_another_one_meanwhile_is_whole() -> None:
    inner = travel  # of an array, in the middle of the other one

    class Nested:
        def __reduce__(self) -> Any:
            return list, (inner([np.arange(5), np.zeros(10_000)])[0].tolist(),)

    first, nested, last = travel([np.zeros(10_000), Nested(), np.ones(3)])

    assert nested == [0, 1, 2, 3, 4]
    assert first.shape == (10_000,)
    assert last.tolist() == [1, 1, 1]


def test_what_the_user_registers_counts_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    class Opaque:
        pass

    pickling.encode([np.zeros(1)])
    monkeypatch.setitem(copyreg.dispatch_table, Opaque, lambda _: (str, ("seen",)))

    assert Opaque in tensors.dispatch_table()
    assert travel([Opaque()]) == ["seen"]
