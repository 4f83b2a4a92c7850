"""Nested values: one rule for what holds leaves, and what every feature makes of it."""

from __future__ import annotations

import collections
import enum
import pickle
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import attrs
import numpy as np
import pytest

import launchpad as lp
from launchpad.courier import trees
from launchpad.courier.batching import stacking
from launchpad.courier.client import sharded


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass(frozen=True)
class Frozen:
    content: Any
    name: str = field(default="", compare=False)

    def __copy__(self) -> Frozen:
        return self


@attrs.frozen
class Attrs:
    content: Any


class Bag(list[Any]):
    """A list with an attribute, and a constructor of its own."""

    def __init__(self, label: str, *items: Any) -> None:
        super().__init__(items)
        self.label = label


class Row(tuple[Any, ...]):
    """A tuple with an attribute."""

    label = ""


@dataclass
class Output(collections.OrderedDict[str, Any]):
    """A dataclass that is a dict, as transformers has them: each item is an attribute, too."""

    loss: Any = None
    logits: Any = None

    def __post_init__(self) -> None:
        for name in ("loss", "logits"):
            self[name] = getattr(self, name)

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def update(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError("not for an output")


@dataclass(frozen=True)
class Point:
    x: int


class Place(Point, enum.Enum):
    HERE = 1
    THERE = 2


def row(*items: Any, label: str) -> Row:
    made = Row(items)
    made.label = label
    return made


CONTAINERS = [
    ({"b": 1, "a": 2}, [2, 1]),
    ({2: "int", 1.5: "float", "x": "str", b"y": "bytes", (1,): "tuple", None: "none"}, None),
    (collections.OrderedDict(b=1, a=2), [2, 1]),
    (collections.defaultdict(int, b=1, a=2), [2, 1]),
    ([1, [2, 3]], [1, 2, 3]),
    ((1, (2,)), [1, 2]),
    (Pair(1, Pair(2, 3)), [1, 2, 3]),
    (Frozen(1, "n"), [1, "n"]),
    (Attrs([1, 2]), [1, 2]),
    (Bag("b", 1, 2), [1, 2]),
    (row(1, 2, label="r"), [1, 2]),
    (Output(1, 2), [2, 1]),
    (time.gmtime(0), [1970, 1, 1, 0, 0, 0, 3, 1, 0]),
    (None, []),
    ({"a": None, "b": [], "c": ((), {})}, []),
]


@pytest.mark.parametrize(("value", "leaves"), CONTAINERS, ids=lambda v: type(v).__name__)
def test_a_container_is_taken_apart_and_made_again(value: Any, leaves: list[Any] | None) -> None:
    found: list[Any] = []
    structure = trees.flatten(value, found)
    sent = pickle.loads(pickle.dumps(structure))

    assert leaves is None or found == leaves
    assert sent == structure
    for again in (trees.rebuilt(value, iter(found)), trees.unflatten(sent, iter(found))):
        assert type(again) is type(value)
        assert again == value
        assert again is not value or value is None
        assert not isinstance(value, dict) or [*again] == [*value]
    assert len([*trees.paths(structure)]) == len(found)


def test_what_a_container_has_besides_is_kept_where_it_is_made_after_another() -> None:
    bag = trees.rebuilt(Bag("b", 1), iter([7]))
    tuple_with_label = trees.rebuilt(row(1, label="r"), iter([7]))
    counts = trees.rebuilt(collections.defaultdict(int, a=1), iter([7]))
    output = trees.rebuilt(Output(1, 2), iter([7, 8]))
    frozen = Frozen(1)

    assert (bag, bag.label) == ([7], "b")
    assert (tuple_with_label, tuple_with_label.label) == ((7,), "r")
    assert (counts["a"], counts["b"]) == (7, 0)
    assert (output.loss, output["loss"], output.logits) == (8, 8, 7)
    assert trees.rebuilt(frozen, iter([7, "x"])).content == 7
    assert frozen.content == 1


@pytest.mark.parametrize(
    "leaf",
    [1, 1.5, "text", b"b", {1}, collections.deque([1]), Place.HERE, Point, object(), np.float32(1)],
    ids=lambda v: type(v).__name__,
)
def test_everything_else_is_a_leaf(leaf: Any) -> None:
    found: list[Any] = []

    assert trees.flatten(leaf, found) is None
    assert found == [leaf]


@pytest.mark.parametrize(
    "array",
    [np.array(3), np.zeros((0, 2)), np.array([object()]), np.ma.masked_array([1], [True])],
    ids=["0-d", "empty", "objects", "masked"],
)
def test_an_array_of_any_kind_is_a_leaf(array: Any) -> None:
    found: list[Any] = []

    assert trees.flatten(array, found) is None
    assert found[0] is array


def test_dicts_with_equal_keys_are_alike_in_any_order() -> None:
    leaves: list[Any] = []
    one = trees.flatten({"a": 1, "b": {2: 3, True: 4}}, leaves)
    other = trees.flatten({"b": {1: 4, 2: 3}, "a": 1}, leaves)
    another = trees.flatten(collections.OrderedDict(a=1, b={2: 3, True: 4}), leaves)

    assert leaves[:3] == leaves[3:6]
    assert one != other
    assert trees.without_order(one) == trees.without_order(other)
    assert trees.without_order(one) != trees.without_order(another)


def test_keys_that_cannot_be_told_apart_are_refused() -> None:
    class Key:
        def __repr__(self) -> str:
            return "Key"

    with pytest.raises(TypeError, match="two keys of a dict are both written Key"):
        trees.flatten({Key(): 1, Key(): 2}, [])


def test_a_path_says_where_a_leaf_is() -> None:
    structure = trees.flatten({"x": [1, Pair(2, Attrs((3,)))], 7: Frozen(4)}, [])

    assert [*trees.paths(structure)] == [
        "[7].content",
        "[7].name",
        "['x'][0]",
        "['x'][1].left",
        "['x'][1].right.content[0]",
    ]
    assert [*trees.paths(None)] == ["the value"]


def test_a_member_of_an_enum_stays_what_it_is_in_a_batch() -> None:
    stacked = stacking.stack([Place.HERE, Place.HERE])

    assert stacked == [Place.HERE, Place.HERE]
    assert Place.HERE.x == 1


def test_a_container_that_copies_to_itself_is_not_changed_by_a_batch() -> None:
    value = Frozen(1.0)

    stacked = stacking.stack([value, Frozen(2.0)])

    assert stacked.content.tolist() == [1.0, 2.0]
    assert value.content == 1.0


def test_results_of_shards_are_joined_in_named_tuples_and_classes_and_masks_are_refused() -> None:
    shares = lp.RangePartition(4).cut([3, 2, 1, 0], 2)
    answers = [Pair(np.array([i, i]), Attrs([str(i)] * 2)) for i in range(2)]
    masked = [np.ma.masked_array([1, 2], [True, False])] * 2

    joined = sharded._join(shares, answers)

    assert joined.left.tolist() == [1, 1, 0, 0]
    assert joined.right == Attrs(["1", "1", "0", "0"])
    with pytest.raises(TypeError, match=r"result\.right is a masked array"):
        sharded._join(shares, [Pair([1, 2], each) for each in masked])
