"""A search for values that come back as something else.

    python benchmarks/nested_values.py [--examples N] [--seed S] [--only WAY]

hypothesis makes nested values: numbers of Python and numpy, text, arrays of every dtype, order and mask, in
lists, tuples, dicts, named tuples and dataclasses. Each goes one of these ways. The value that comes back
must be the one that pickle or numpy would give, with the same types and dtypes. A way may also refuse a value
with an exception.

call         arguments and results of calls, in one piece and with their arrays apart
queue        items that a producer puts into a queue, and a consumer takes
batch        requests that `batched_handler` joins, and answers that it takes apart
shards       results of the shards of `lp.sharded`, joined
replay       items and steps as a replay table keeps them
collective   trees that two ranks on threads reduce, gather, broadcast and swap

At the first value that comes back different, the script prints the smallest such value that hypothesis finds,
and exits with 1.
"""

from __future__ import annotations

import collections
import copy
import math
import pickle
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, wait
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NamedTuple

import hypothesis
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

import launchpad as lp
from benchmarks.harness.command_line import Parser, finish
from launchpad.courier import trees
from launchpad.courier.batching import stacking
from launchpad.courier.client import sharded
from launchpad.courier.codec import pickling
from launchpad.queues import packing
from launchpad.replay import columns

LIMIT_S = 30.0


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass
class Box:
    content: Any
    number: Any = 0


@dataclass(frozen=True)
class FrozenBox:
    content: Any


# --- values --------------------------------------------------------------------------------------

NUMBERS = st.one_of(
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([2**53 + 1, -(2**53) - 1, 2**63 - 1, 2**63]),
    st.floats(),
    st.complex_numbers(allow_nan=False),
)
PLAIN = st.one_of(NUMBERS, st.none(), st.text(max_size=8), st.binary(max_size=8))
NUMBER_DTYPES = [np.dtype(code) for code in "? b B h H i I l L e f d g F D >i4 >f8".split()]
OTHER_DTYPES = [np.dtype(code) for code in "S3 U2 M8[s] m8[us] V4 O".split()] + [
    np.dtype([("a", "i4"), ("b", "f8", (2,))])
]


def fill(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int) -> Any:
    """Return an array of this dtype and shape, with values that the seed decides."""
    n = math.prod(shape)
    numbers = np.random.default_rng(seed).integers(0, 100, n)
    if dtype.kind == "V":
        data = numbers.astype("u1").repeat(max(1, dtype.itemsize)).tobytes()
        flat = np.frombuffer(data, dtype, count=n)
    else:
        flat = numbers.astype(dtype)
    return np.array(flat.reshape(shape))


@st.composite
def arrays(draw: st.DrawFn, dtypes: Sequence[np.dtype[Any]]) -> Any:
    """Draw an array: strided, reversed, read-only, masked, empty, or so large that it travels apart."""
    dtype = draw(st.sampled_from(dtypes))
    shape = draw(arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
    if draw(st.integers(0, 60)) == 0:
        last_axis = shape[:1] if math.prod(shape[:1]) < 3 else ()
        shape = (90 << 10, *last_axis)
    array = fill(dtype, shape, draw(st.integers(0, 1000)))
    if draw(st.booleans()):
        array = np.asarray(array, order="F")
    if array.ndim and draw(st.booleans()):
        array = array[:: draw(st.sampled_from([1, 2, -1]))]
    kind = draw(st.sampled_from(["plain"] * 6 + ["masked", "read-only", "scalar"]))
    if kind == "masked" and dtype.kind in "biuf":
        return np.ma.masked_array(array, mask=draw(st.booleans()))
    if kind == "read-only":
        array.flags.writeable = False
    if kind == "scalar" and array.ndim == 0:
        return array[()]
    return array


def nests(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for structures with these leaves."""
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.lists(inner, max_size=3).map(tuple),
            st.dictionaries(st.one_of(st.text(max_size=3), st.integers(-3, 3)), inner, max_size=3),
            st.tuples(inner, inner).map(lambda both: Pair(*both)),
            st.tuples(inner, st.integers(0, 3)).map(lambda both: Box(*both)),
            inner.map(FrozenBox),
            st.lists(st.tuples(st.text(max_size=2), inner), max_size=2).map(
                collections.OrderedDict
            ),
        ),
        max_leaves=6,
    )


NUMERIC_TREES = nests(st.one_of(NUMBERS, arrays(NUMBER_DTYPES)))
ANY_TREES = nests(st.one_of(PLAIN, arrays(NUMBER_DTYPES + OTHER_DTYPES)))


def map_leaves(tree: Any, change: Callable[[Any], Any]) -> Any:
    """Return a tree of the same structure, with `change(leaf)` for each leaf."""
    if isinstance(tree, dict):
        new = copy.copy(tree)
        new.update({key: map_leaves(item, change) for key, item in tree.items()})
        return new
    if isinstance(tree, Pair):
        return Pair(*[map_leaves(item, change) for item in tree])
    if isinstance(tree, list | tuple):
        return type(tree)([map_leaves(item, change) for item in tree])
    if is_dataclass(tree) and not isinstance(tree, type):
        changed = copy.copy(tree)
        for field in fields(tree):
            value = map_leaves(getattr(tree, field.name), change)
            object.__setattr__(changed, field.name, value)
        return changed
    return change(tree)


@st.composite
def relatives(draw: st.DrawFn, trees: st.SearchStrategy[Any], n: int) -> list[Any]:
    """Draw `n` values that mostly differ only in their numbers, and sometimes in a type."""
    first = draw(trees)

    def vary(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray | np.generic):
            is_number = leaf.dtype.kind in "biufc"
            if is_number and draw(st.integers(0, 20)) == 0:
                changed = np.array(leaf, draw(st.sampled_from(NUMBER_DTYPES)))
                return changed if isinstance(leaf, np.ndarray) else changed[()]
            return copy.copy(leaf)
        if isinstance(leaf, bool | int | float | complex):
            return draw(NUMBERS) if draw(st.integers(0, 6)) == 0 else leaf
        return leaf

    return [first, *(map_leaves(first, vary) for _ in range(n - 1))]


# --- comparing -----------------------------------------------------------------------------------


def is_same(actual: Any, expected: Any) -> bool:
    """Return True if both are equal in every type, dtype, shape, mask and bit; NaN equals NaN."""
    if type(actual) is not type(expected):
        return False
    if isinstance(expected, np.ndarray | np.generic):
        return is_same_array(actual, expected)
    if isinstance(expected, dict):
        same_keys = list(actual) == list(expected)
        return same_keys and all(is_same(actual[key], value) for key, value in expected.items())
    if isinstance(expected, list | tuple):
        same_length = len(actual) == len(expected)
        return same_length and all(map(is_same, actual, expected))
    if is_dataclass(expected) and not isinstance(expected, type):
        names = [field.name for field in fields(expected)]
        return all(is_same(getattr(actual, name), getattr(expected, name)) for name in names)
    return is_same_number(actual, expected)


def is_same_array(actual: Any, expected: Any) -> bool:
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return False
    if isinstance(expected, np.ma.MaskedArray):
        masks = np.ma.getmaskarray(actual), np.ma.getmaskarray(expected)
        return bool((masks[0] == masks[1]).all()) and is_same_array(actual.data, expected.data)
    if expected.dtype.hasobject:
        return bool(actual.tolist() == expected.tolist())
    if expected.dtype.char in "gG":  # a long double has padding bytes, which may differ
        return np.array_equal(actual, expected, equal_nan=True)
    return bool(actual.tobytes() == expected.tobytes())


def is_same_number(actual: Any, expected: Any) -> bool:
    if isinstance(expected, float | complex) and expected != expected:
        return bool(actual != actual)
    return bool(actual == expected)


def is_as_number(actual: Any, expected: Any) -> bool:
    """Return True if a number or array came back as an equal one, perhaps as numpy's."""
    actual_array = np.asarray(actual)
    expected_array = np.asarray(expected)
    if actual_array.shape != expected_array.shape:
        return False
    is_of_python = isinstance(expected, bool | int | float | complex)
    # Text in a batch has the length of the longest one, so its dtype may differ.
    is_text = expected_array.dtype.kind in "SUO"
    native = expected_array.dtype.newbyteorder("=")
    dtypes = (expected_array.dtype, native)  # numpy makes the byte order native when it stacks
    if not is_of_python and not is_text and actual_array.dtype not in dtypes:
        return False
    pairs = zip(actual_array.reshape(-1).tolist(), expected_array.reshape(-1).tolist(), strict=True)
    return all(is_same_number(left, right) for left, right in pairs)


def leaves_of(tree: Any) -> list[Any]:
    leaves: list[Any] = []
    map_leaves(tree, leaves.append)
    return leaves


class Different(AssertionError):
    """A value came back as something else."""


def require(is_right: bool, way: str, expected: Any, actual: Any) -> None:
    if not is_right:
        raise Different(f"{way}: {expected!r} came back as {actual!r}")


# --- the ways ------------------------------------------------------------------------------------


def is_as_by_pickle(actual: Any, value: Any) -> bool:
    """Return True if it is the value, or pickle's copy, which loses the byte order of some arrays."""
    return is_same(actual, value) or is_same(actual, pickle.loads(pickle.dumps(value, 5)))


def travel_by_call(value: Any) -> None:
    body, views = pickling.encode_call((value, 1), {"name": value})
    args, kwargs = pickling.loads(body, [bytearray(view) for view in views or ()])
    require(is_as_by_pickle(args[0], value), "an argument", value, args[0])
    require(is_as_by_pickle(kwargs["name"], value), "a keyword argument", value, kwargs["name"])
    body, views = pickling.encode(value)
    result = pickling.loads(body, [bytearray(view) for view in views])
    require(is_as_by_pickle(result, value), "a result", value, result)


def travel_by_queue(value: Any) -> None:
    for is_copied in (False, True):
        item = packing.unpack(pickle.loads(pickle.dumps(packing.pack(value, copy=is_copied))))
        require(is_as_by_pickle(item, value), "an item", value, item)


def travel_in_batch(values: list[Any]) -> None:
    if not stacking.are_alike(values):
        return  # they go in different batches
    batch = stacking.stack(values)
    rows = stacking.unstack(batch, len(values))
    for row, value in zip(rows, values, strict=True):
        for actual, expected in zip(leaves_of(row), leaves_of(value), strict=True):
            is_number = isinstance(expected, bool | int | float | complex | np.ndarray | np.generic)
            is_right = is_as_number(actual, expected) if is_number else is_same(actual, expected)
            require(is_right, "a request of a batch", value, row)


def travel_from_shards(results: list[Any]) -> None:
    """Check joined answers: each shard returns one of these values for two keys, in a list or an array."""
    n = len(results)
    shares = lp.RangePartition(2 * n).cut(list(range(2 * n))[::-1], n)
    for answers in (
        [[result, result] for result in results],
        [as_column(result) for result in results],
    ):
        joined = sharded._join(shares, answers)
        for share, answer in zip(shares, answers, strict=True):
            for place, position in enumerate(share.positions):
                require(
                    is_as_entry(joined[position], answer[place]),
                    "an answer of a shard",
                    results,
                    joined,
                )


def as_column(value: Any) -> Any:
    """Return an array with two entries, both equal to the value's first leaf."""
    leaf = leaves_of(value)[0] if leaves_of(value) else 0
    array = np.asarray(leaf)
    return np.stack([array, array])


def is_as_entry(actual: Any, expected: Any) -> bool:
    """Return True if an entry is the same, or a number that is exactly equal."""
    if is_same(actual, expected):
        return True
    if not isinstance(expected, np.ndarray | np.generic):
        return False
    pairs = zip(np.asarray(actual).reshape(-1).tolist(), expected.reshape(-1).tolist(), strict=True)
    return all(is_same_number(left, right) for left, right in pairs)


def travel_by_replay(value: Any) -> None:
    arrays, structure = columns.arrays_of(value)
    specs = tuple(trees.spec_of(array) for array in arrays)
    encoded = columns.encode_signature(columns.Signature(structure, specs))
    signature = columns.decode_signature(encoded)
    buffers = [bytes(memoryview(columns.buffer_of(array))) for array in arrays]
    batch = trees.unflatten(
        signature.structure, iter(columns.stacked(signature, [2 * buffer for buffer in buffers], 2))
    )
    for row, leaf in zip(leaves_of(batch), leaves_of(value), strict=True):
        array = np.asarray(leaf)
        expected = np.stack([array, array]).astype(array.dtype)  # numpy makes its order native
        is_plain = not isinstance(leaf, np.ma.MaskedArray)
        require(is_plain and is_same_array(row, expected), "a sample", value, batch)


class Rank:
    """One rank of two, which takes part in collective operations on trees."""

    def __init__(self, group: lp.Collective) -> None:
        self._group = group

    def operate(self, operation: str, tree: Any) -> Any:
        """Take part in an operation; return this rank's result."""
        if operation == "broadcast":
            return self._group.broadcast(tree, root=1)
        if operation == "all_gather":
            return self._group.all_gather(tree)
        if operation == "all_to_all":
            return self._group.all_to_all([tree, tree])
        return self._group.all_reduce(tree, operation)


REDUCTIONS: dict[str, Any] = {"sum": np.add, "max": np.maximum}
OPERATIONS = [*REDUCTIONS, "broadcast", "all_gather", "all_to_all"]


class Ranks:
    """A group of two ranks on threads."""

    def __init__(self) -> None:
        self._begin()
        self._n_done = 0

    def _begin(self) -> None:
        program = lp.Program("ranks")
        with program.group("rank"):
            for _ in range(2):
                program.add_node(lp.CollectiveNode(Rank, timeout_s=LIMIT_S))
        self._running = lp.launch(program, "test_mt")
        self._clients = [self._running.client(f"rank-{rank}") for rank in range(2)]

    def travel(self, trees: list[Any]) -> None:
        """Check one operation: the ranks must get the right results, or both must raise."""
        operation = OPERATIONS[self._n_done % len(OPERATIONS)]
        self._n_done += 1
        futures = [
            client.futures.operate(operation, tree)
            for client, tree in zip(self._clients, trees, strict=True)
        ]
        finished_futures, waiting_futures = wait(futures, LIMIT_S, FIRST_EXCEPTION)
        if any(future.exception() is not None for future in finished_futures):
            # If one rank has refused its value, the other still waits for it or has raised an error,
            # too. Only the root of a broadcast may have returned, since it does not wait for others.
            returned = [future for future in finished_futures if future.exception() is None]
            is_allowed = not returned or (operation == "broadcast" and returned == [futures[1]])
            require(is_allowed, f"{operation}, which one rank took", trees, finished_futures)
            self.close()
            self._begin()
            return
        require(not waiting_futures, f"{operation}, which never returned", trees, waiting_futures)
        for future in futures:
            result = future.result()
            if operation == "broadcast":
                is_right = is_same(result, trees[1])
            elif operation in ("all_gather", "all_to_all"):
                is_right = is_same(result, trees)
            else:
                is_right = is_reduced(result, trees, REDUCTIONS[operation])
            require(is_right, operation, trees, result)

    def close(self) -> None:
        self._running.stop()


def is_reduced(actual: Any, trees: list[Any], ufunc: Any) -> bool:
    """Return True if the tree has the ranks' structure, and each leaf is numpy's result for their leaves."""
    results = []
    for left, right in zip(*map(leaves_of, trees), strict=True):
        result = ufunc(left, right)
        if type(left) in (bool, int, float, complex):
            result = result.item()
        elif isinstance(left, np.ndarray):
            result = np.asarray(result, left.dtype)
        results.append(result)
    leaves = iter(results)
    return is_same(actual, map_leaves(trees[0], lambda _: next(leaves)))


# --- the search ----------------------------------------------------------------------------------

PAIRS = relatives(NUMERIC_TREES, 2)
WAYS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], None], float]] = {
    "call": (ANY_TREES, travel_by_call, 0.25),
    "queue": (ANY_TREES, travel_by_queue, 0.25),
    "batch": (relatives(ANY_TREES, 3), travel_in_batch, 0.2),
    "shards": (relatives(ANY_TREES, 3), travel_from_shards, 0.1),
    "replay": (NUMERIC_TREES, travel_by_replay, 0.1),
}
REFUSALS = (TypeError, ValueError, OverflowError, LookupError, AttributeError, pickle.PicklingError)
COLLECTIVE_SHARE = 0.1


def search(way: str, n_examples: int, seed: int) -> int:
    """Send `n_examples` values this way; return the number of refusals. Raises Different."""
    if way == "collective":
        ranks = Ranks()
        try:
            return _search(PAIRS, ranks.travel, n_examples, seed)
        finally:
            ranks.close()
    values, travel, _ = WAYS[way]
    return _search(values, travel, n_examples, seed)


def _search(
    values: st.SearchStrategy[Any], travel: Callable[[Any], None], n_examples: int, seed: int
) -> int:
    n_refused = 0

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=n_examples,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(values)
    def check(value: Any) -> None:
        nonlocal n_refused
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
                travel(value)
        except REFUSALS:
            n_refused += 1

    check()
    return n_refused


def main() -> None:
    parser = Parser(__doc__, examples=10_000, seed=0)
    parser.add_argument("--only", choices=[*WAYS, "collective"], help="this way alone")
    options = parser.parse_args()
    shares = {way: share for way, (_, _, share) in WAYS.items()}
    shares["collective"] = COLLECTIVE_SHARE
    if options.only:
        shares = {options.only: 1.0}
    for way, share in shares.items():
        n_examples = round(options.examples * share)
        began = time.monotonic()
        try:
            n_refused = search(way, n_examples, options.seed)
        except Different as different:
            sys.exit(str(different))
        took_s = time.monotonic() - began
        print(
            f"{way:10s}  {n_examples:7,d} values, {n_refused:6,d} refused, {took_s:6.1f} s",
            flush=True,
        )
    print(
        f"all as they were: {sum(round(options.examples * share) for share in shares.values()):,}"
    )
    finish(options, {})


if __name__ == "__main__":
    main()
