"""Whatever arrays, operations and numbers of ranks hypothesis thinks of: the bits that numpy gives."""

from __future__ import annotations

import functools
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import launchpad as lp
from tests.collectives.test_operations import DTYPES, UFUNCS
from tests.helpers.collective_nodes import in_ranks, values

MOVES = ["reduce_scatter", "all_gather", "broadcast", "all_to_all"]


@st.composite
def arrays(draw: st.DrawFn) -> tuple[str, int]:
    """A dtype, and how many of it: few, about as many as where another algorithm begins, or many."""
    dtype = draw(st.sampled_from(DTYPES))
    near = draw(st.sampled_from([0, 1 << 16, 1 << 18, 1 << 20, 1 << 22]))
    n_bytes = max(0, near + draw(st.integers(-100, 1000)))
    return dtype, n_bytes // np.dtype(dtype).itemsize


def operate(group: lp.Collective, operation: str, dtype: str, size: int) -> Any:
    own = values(group.rank, dtype, size)
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


def agrees_with_numpy(n: int, operation: str, array: tuple[str, int]) -> None:
    results = in_ranks(n, operate, operation, *array)

    given = [values(rank, *array) for rank in range(n)]
    for rank, found in enumerate(results):
        expected = with_numpy(operation, given, rank)
        assert found.dtype == expected.dtype
        assert found.tobytes() == expected.tobytes()


CASES = (st.integers(1, 8), st.sampled_from([*UFUNCS, *MOVES]), arrays())


@pytest.mark.slow
@hypothesis.settings(max_examples=6)
@hypothesis.given(*CASES)
def test_any_operation_on_any_array_is_what_numpy_gives(
    n: int, operation: str, array: tuple[str, int]
) -> None:
    agrees_with_numpy(n, operation, array)


@pytest.mark.endurance
@hypothesis.settings(max_examples=30)
@hypothesis.given(*CASES)
@hypothesis.example(3, "sum", ("f4", 1 << 24))  # 64 MiB
@hypothesis.example(2, "reduce_scatter", ("f8", 1 << 23))
@hypothesis.example(2, "all_gather", ("u1", 1 << 26))
@hypothesis.example(2, "broadcast", ("c16", 1 << 22))
@hypothesis.example(2, "all_to_all", ("i2", 1 << 25))
def test_many_operations_also_on_large_arrays_are_what_numpy_gives(
    n: int, operation: str, array: tuple[str, int]
) -> None:
    agrees_with_numpy(n, operation, array)
