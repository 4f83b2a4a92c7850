"""Dataclasses that take little time to import behave as those of the standard library."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from launchpad.courier import light_dataclass


@light_dataclass.dataclass(frozen=True)
class Frozen:
    """With fields of all kinds."""

    name: str
    number: int = 1
    items: list[int] = dataclasses.field(default_factory=list, compare=False)
    secret: str = dataclasses.field(default="", repr=False)


@light_dataclass.dataclass
class Changing:
    """Not frozen, and so without a hash."""

    name: str
    length: int = dataclasses.field(default=0, init=False)

    def __post_init__(self) -> None:
        self.length = len(self.name)

    def __repr__(self) -> str:
        return "its own"


@light_dataclass.dataclass(eq=False)
class Unique:
    """Equal to itself only."""

    name: str


def test_fields_have_their_values_or_defaults() -> None:
    one = Frozen("a", items=[1])

    assert dataclasses.asdict(one) == {"name": "a", "number": 1, "items": [1], "secret": ""}
    assert list(vars(one)) == ["name", "number", "items", "secret"]
    assert Frozen("a").items is not Frozen("a").items
    assert repr(one) == "Frozen(name='a', number=1, items=[1])"


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), (("a",), {"name": "b"}), (("a",), {"nmae": "b"}), (("a", 1, [], "", 5), {})],
)
def test_wrong_arguments_are_refused(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        Frozen(*args, **kwargs)


def test_a_frozen_one_is_compared_and_hashed_by_what_is_compared_and_cannot_change() -> None:
    one = Frozen("a", items=[1])

    assert one == Frozen("a", items=[2]) != Frozen("b")
    assert hash(one) == hash(Frozen("a"))
    assert one != Changing("a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.name = "b"
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.another = "b"
    with pytest.raises(dataclasses.FrozenInstanceError):
        del one.name


def test_methods_of_its_own_stay_and_one_that_can_change_has_no_hash() -> None:
    one = Changing("abc")
    one.name = "abcd"

    assert (one.length, repr(one)) == (3, "its own")
    with pytest.raises(TypeError):
        hash(one)


def test_without_eq_each_is_equal_to_itself_only() -> None:
    one = Unique("a")

    assert one in {one}
    assert one != Unique("a")
