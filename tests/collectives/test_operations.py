"""Every operation beside numpy's, for types, sizes, numbers of ranks and algorithms."""

from __future__ import annotations

import functools
import itertools
import mmap
import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

import launchpad as lp
from launchpad.collectives import courier_operations, host_memory
from tests.helpers.collective_nodes import Pair, in_ranks, program_of, values

DTYPES = "bool i1 u1 i2 i4 i8 u8 f2 f4 f8 c8 c16".split()
UFUNCS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
OPERATIONS = [*UFUNCS, "reduce_scatter", "all_gather", "broadcast", "all_to_all"]


def each_on_another_host(patch: Callable[[Any, str, Any], object]) -> None:
    patch(host_memory, "boot_id", lambda: os.urandom(16))


@pytest.fixture(params=["in memory", "in parts", "at root", "direct", "ring"])
def algorithm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whatever the size, this one."""
    if request.param == "in parts":
        monkeypatch.setattr(courier_operations, "SMALL", 0)
        monkeypatch.setattr(courier_operations, "ROW", mmap.PAGESIZE)
    if request.param in ("direct", "ring"):
        monkeypatch.setattr(courier_operations, "SMALL", -1)
    if request.param in ("at root", "direct"):
        each_on_another_host(monkeypatch.setattr)
    if request.param == "ring":
        monkeypatch.setattr(courier_operations, "MANY", 1)
    return str(request.param)


def operate(group: lp.Collective, operation: str, dtype: str, size: int) -> Any:
    own = shaped(values(group.rank, dtype, size))
    if operation == "reduce_scatter":
        return group.reduce_scatter(own)
    if operation == "all_gather":
        return np.stack(group.all_gather(own))
    if operation == "broadcast":
        return group.broadcast(own, root=group.size - 1)
    if operation == "all_to_all":
        return np.concatenate(group.all_to_all(np.array_split(own, group.size)))
    return group.all_reduce(own, operation)


def with_numpy(operation: str, given: list[Any], rank: int) -> Any:
    if operation == "reduce_scatter":
        return np.array_split(functools.reduce(np.add, given), len(given))[rank]
    if operation == "all_gather":
        return np.stack(given)
    if operation == "broadcast":
        return given[-1]
    if operation == "all_to_all":
        return np.concatenate([np.array_split(each, len(given))[rank] for each in given])
    return functools.reduce(UFUNCS[operation], given)


def shaped(array: Any) -> Any:
    """In rows of three, if there are whole ones."""
    return array.reshape(-1, 3) if array.size and array.size % 3 == 0 else array


def operate_all(group: lp.Collective, sizes: list[int]) -> dict[tuple[str, str, int], Any]:
    cases = itertools.product(OPERATIONS, DTYPES, sizes)
    return {case: operate(group, *case) for case in cases}


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_every_operation_is_what_numpy_gives_bit_for_bit_everywhere(n: int, algorithm: str) -> None:
    sizes = [0, 1, 7, 99] if algorithm != "in parts" else [0, 7, 2001, 4097]

    results = in_ranks(n, operate_all, sizes)

    for case, first in results[0].items():
        operation, dtype, size = case
        given = [shaped(values(rank, dtype, size)) for rank in range(n)]
        is_sum = operation in (*UFUNCS, "reduce_scatter")
        for rank, found in enumerate(each[case] for each in results):
            expected = with_numpy(operation, given, rank)
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            if algorithm == "ring" and is_sum and expected.dtype.kind in "fc":  # in another order
                np.testing.assert_allclose(found, expected, rtol=1e-2 if dtype == "f2" else 1e-5)
            else:
                assert found.tobytes() == expected.tobytes(), case
            assert operation not in UFUNCS or found.tobytes() == first.tobytes()


@st.composite
def arrays(draw: st.DrawFn) -> tuple[str, int]:
    """A dtype, and how many of it: few, about as many as where another algorithm begins, or many."""
    dtype = draw(st.sampled_from(DTYPES))
    near = draw(st.sampled_from([0, 1 << 16, 1 << 18, 1 << 20, 1 << 22]))
    n_bytes = max(0, near + draw(st.integers(-100, 1000)))
    return dtype, n_bytes // np.dtype(dtype).itemsize


def agrees_with_numpy(n: int, operation: str, array: tuple[str, int]) -> None:
    results = in_ranks(n, operate, operation, *array)

    given = [shaped(values(rank, *array)) for rank in range(n)]
    for rank, found in enumerate(results):
        expected = with_numpy(operation, given, rank)
        assert found.dtype == expected.dtype
        assert found.tobytes() == expected.tobytes()


CASES = (st.integers(1, 8), st.sampled_from(OPERATIONS), arrays())


@pytest.mark.slow
@hypothesis.settings(max_examples=6)
@hypothesis.given(*CASES)
def test_any_operation_is_what_numpy_gives(n: int, operation: str, array: tuple[str, int]) -> None:
    agrees_with_numpy(n, operation, array)


@pytest.mark.endurance
@hypothesis.settings(max_examples=30)
@hypothesis.given(*CASES)
@hypothesis.example(3, "sum", ("f4", 1 << 24))  # 64 MiB
@hypothesis.example(2, "reduce_scatter", ("f8", 1 << 23))
@hypothesis.example(2, "all_gather", ("u1", 1 << 26))
@hypothesis.example(2, "broadcast", ("c16", 1 << 22))
@hypothesis.example(2, "all_to_all", ("i2", 1 << 25))
def test_large_ones_are_what_numpy_gives(n: int, operation: str, array: tuple[str, int]) -> None:
    agrees_with_numpy(n, operation, array)


def reduce_large(group: lp.Collective, size: int) -> tuple[bytes, bool]:
    x = np.arange(size, dtype=np.float32)
    own = x * (group.rank + 1)
    result = group.all_reduce(own, out=own)
    is_right = result is own and np.array_equal(own, x * sum(range(1, group.size + 1)))
    return result[:: size // 64].tobytes(), is_right


@pytest.mark.slow
@pytest.mark.parametrize(("n", "size"), [(2, 1 << 24), (3, (1 << 20) + 1)])
def test_megabytes_between_processes_in_place(n: int, size: int) -> None:
    (first, *others) = in_ranks(n, reduce_large, size, launch_type="test_mp")

    assert first[1]
    assert others == [first] * (n - 1)


def reduce_in_parts_of_the_group(group: lp.Collective) -> list[float]:
    part = group.split(group.rank % 2)
    assert part is not None
    totals = []
    for size in (1 << 18, 3, (1 << 19) + 1, (1 << 20) - 1):  # of 8 bytes: at once, and in chunks
        x = np.full(size, 1.0 + group.rank)
        for ranks in (part, group):
            reduced = ranks.all_reduce(x)
            assert (reduced == reduced[0]).all()
            totals.append(reduced[0])
    return totals


def test_parts_of_a_group_and_all_of_it_reduce_by_turns() -> None:
    results = in_ranks(4, reduce_in_parts_of_the_group)

    assert results == [[4.0, 10.0] * 4, [6.0, 10.0] * 4] * 2


@dataclass(frozen=True)
class Model:
    weights: Any
    bias: float


def reduce_trees(group: lp.Collective) -> list[Any]:
    rank = group.rank
    model = Model(np.ones((2, 2), np.float32) * rank, 0.5 * rank)
    tree = {"b": (model, None), "a": [rank, Pair(True, np.int8(rank))]}
    other_order = dict(reversed(tree.items())) if rank else tree
    return [
        group.all_reduce(other_order),
        group.all_reduce([1.0, 2.0], "mean"),
        group.all_reduce(0.5),
    ]


def test_trees_keep_their_structure_and_numbers_their_types() -> None:
    for tree, mean, half in in_ranks(3, reduce_trees):
        model, nothing = tree["b"]
        number, pair = tree["a"]

        assert (type(model), type(pair), type(number)) == (Model, Pair, int)
        assert (model.weights.tolist(), model.bias, nothing) == ([[3.0, 3.0]] * 2, 1.5, None)
        assert (number, pair.first, pair.second, type(pair.second)) == (3, True, 3, np.int8)
        assert (mean, half) == ([1.0, 2.0], 1.5)


class Strings(list[Any]):
    """A list of another class."""


class Point(tuple[Any, ...]):
    """A tuple with a constructor of its own."""

    def __new__(cls, x: Any, y: Any) -> Point:
        return super().__new__(cls, (x, y))

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)


ARRAYS = st_numpy.arrays(
    st.sampled_from([*DTYPES, ">i4", ">f8", ">c16"]),
    st_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
    elements=st.integers(0, 1),
)
TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(-9, 9)
    | st.complex_numbers(max_magnitude=9, allow_nan=False)
    | ARRAYS
    | ARRAYS.map(lambda array: array.ravel()[0] if array.size else array.T),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(Strings)
        | st.builds(Point, inner, inner)
        | st.builds(Pair, inner, inner)
        | st.builds(Model, inner, inner)
        | st.dictionaries(
            st.sampled_from(["a", "ü", 1, 2.5, (1, 2), None, b"x"]), inner, max_size=3
        )
        | st.dictionaries(st.booleans(), inner, max_size=2).map(OrderedDict)
    ),
    max_leaves=8,
)


def give_back(group: lp.Collective, trees: list[Any]) -> list[list[Any]]:
    """Each tree as each operation gives it back that does not change it."""
    return [
        [
            group.broadcast(tree, root=1),
            *group.all_gather(tree),
            *group.all_to_all([tree] * group.size),
            group.all_reduce(tree, "max"),
            group.all_reduce(tree, "min"),
        ]
        for tree in trees
    ]


def shown(value: Any) -> Any:
    """All that there is to a tree, to be compared: types, too, and bits."""
    kind = type(value)
    if isinstance(value, dict):
        return kind, [(key, shown(each)) for key, each in value.items()]
    if isinstance(value, list | tuple):
        return kind, [*map(shown, value)]
    if isinstance(value, Model):
        return kind, shown(value.weights), shown(value.bias)
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    return kind, repr(value)


@hypothesis.settings(max_examples=5)
@hypothesis.given(st.lists(TREES, min_size=5, max_size=20))
def test_any_tree_comes_back_as_it_was(trees: list[Any]) -> None:
    for results in in_ranks(2, give_back, trees):
        for tree, found in zip(trees, results, strict=True):
            assert [*map(shown, found)] == [shown(tree)] * 7


def swap_trees(group: lp.Collective) -> dict[str, Any]:
    rank, size = group.rank, group.size
    parts = [
        {"x": np.array([rank, to]), "y": (Model(np.full((to, 2), rank), 0.5 * to), None)}
        for to in range(size)
    ]
    arrays = [np.full(3, rank) for _ in range(size)]
    swapped = group.all_to_all(arrays)
    for array in arrays:
        array[:] = -1
    return {
        "trees": group.all_to_all(parts),
        "lists": group.all_to_all([[[1, rank], [3.0, to]] for to in range(size)]),
        "empty": group.all_to_all([{}] * size),
        "new": swapped,
    }


@pytest.mark.parametrize("launch_type", ["test_mt", "test_mp"])
def test_all_to_all_exchanges_whole_trees(launch_type: str) -> None:
    for rank, found in enumerate(in_ranks(3, swap_trees, launch_type=launch_type)):
        for sender, tree in enumerate(found["trees"]):
            model, nothing = tree["y"]
            assert tree["x"].tolist() == [sender, rank]
            assert (type(model), model.bias, nothing) == (Model, 0.5 * rank, None)
            assert model.weights.tolist() == [[sender, sender]] * rank
        assert found["lists"] == [[[1, sender], [3.0, rank]] for sender in range(3)]
        assert found["empty"] == [{}] * 3
        assert [array.tolist() for array in found["new"]] == [[sender] * 3 for sender in range(3)]


def reduce_into_a_shifted_part(group: lp.Collective, size: int, shift: int) -> tuple[int, int]:
    """How many numbers are wrong: of a result after its array in memory, and of one before."""
    expected = np.arange(size) * group.size + sum(range(group.size))
    wrong = []
    for x_at, out_at in ((0, shift), (shift, 0)):
        memory = np.zeros(size + shift)
        x, out = memory[x_at : x_at + size], memory[out_at : out_at + size]
        x[:] = np.arange(size) + group.rank
        group.all_reduce(x, out=out)
        wrong.append(int((out != expected).sum()))
    return wrong[0], wrong[1]


@pytest.mark.parametrize("size", [99, (1 << 18) + 1])
def test_a_result_may_overlap_with_what_is_reduced(size: int, algorithm: str) -> None:
    assert in_ranks(3, reduce_into_a_shifted_part, size, size // 3) == [(0, 0)] * 3


REFUSED: list[tuple[Callable[[lp.Collective], object], str]] = [
    (lambda group: group.all_reduce(np.ones(3), op="median"), "op='median'"),
    (lambda group: group.all_reduce("text"), "'text'"),
    (lambda group: group.all_reduce(np.arange(3), op="mean"), "fractions"),
    (lambda group: group.reduce_scatter(np.arange(3), op="mean"), "fractions"),
    (lambda group: group.all_reduce(np.ones(3), out=np.ones(4)), "out="),
    (lambda group: group.broadcast(np.ones(3), root=7), "root=7"),
    (lambda group: group.reduce_scatter(1.0), "axis"),
    (lambda group: group.all_to_all([np.ones(3)] * 5), "of 2 ranks"),
    (lambda group: group.all_to_all([{"x": 1}, {"y": 1}]), "of one structure"),
    (lambda group: group.all_to_all([np.ones(3), np.ones(3, "f4")]), "the same types"),
    (lambda group: group.all_reduce(np.ones(3), out=read_only(3)), "out="),
    (lambda group: group.all_reduce([], out=np.ones(3)), "out="),
    (lambda group: group.all_reduce(masked()), "would lose its mask"),
    (lambda group: group.all_gather({"x": [np.ma.masked]}), r"\['x'\]\[0\] is a masked array"),
    (lambda group: group.broadcast(masked()), "would lose its mask"),
    (lambda group: group.reduce_scatter(masked()), "would lose its mask"),
    (lambda group: group.all_to_all([masked()] * 2), "would lose its mask"),
    (lambda group: group.all_reduce({"a": 1.0, "b": 1}, op="mean"), "fractions"),
]


def masked() -> Any:
    return np.ma.masked_array([1.0, 2.0], [True, False])


def read_only(size: int) -> Any:
    array = np.ones(size)
    array.flags.writeable = False
    return array


def refuse(group: lp.Collective) -> None:
    for call, text in REFUSED:
        if group.rank == 0:  # the other rank need not come
            with pytest.raises((ValueError, TypeError), match=text):
                call(group)


def test_wrong_arguments_are_refused_where_they_are_given() -> None:
    in_ranks(2, refuse)  # and nothing was exchanged, so that rank 0 waits for nobody


def reduce_often(group: lp.Collective, size: int, way: str) -> None:
    if way != "share":
        each_on_another_host(setattr)  # as this process sees it
    for _ in range(2):
        group.all_reduce(np.ones(size))


@pytest.mark.parametrize(
    ("n", "size", "way"),
    [(2, 1 << 10, "share"), (4, 1 << 20, "share"), (2, 1 << 20, "put"), (4, 1 << 20, "swap")],
)
def test_each_rank_sends_the_least_that_is_possible(n: int, size: int, way: str) -> None:
    running = lp.testing.run(program_of(n, reduce_often, size, way), launch_type="test_mp")

    edges = running.edges()
    for rank in range(n):
        asked = edges.total(caller=f"rank-{rank}", method=way).bytes_sent
        answered = edges.total(server=f"rank-{rank}", method=way).bytes_received
        least = 2 * 2 * (n - 1) / n * 8 * size
        assert asked + answered == pytest.approx(least, rel=0.01)
