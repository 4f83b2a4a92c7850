"""Handles are found wherever an argument may hide them, and the path leads to them."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import launchpad as lp
from launchpad.traverse import contains_itself, walk

Pair = collections.namedtuple("Pair", "first second")


class Server: ...


@dataclasses.dataclass(frozen=True)
class Config:
    inner: Any


@attrs.define
class Slotted:
    inner: Any


class Plain:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def method(self) -> None: ...


class PropertyThatMustNotRun:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    @property
    def trap(self) -> None:
        raise AssertionError("user code was run")


def closure_over(value: Any) -> Callable[[], Any]:
    return lambda: value


def default_of(value: Any) -> Callable[[], Any]:
    def function(argument: Any = value) -> Any:
        return argument

    return function


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "list": lambda v: [0, v],
    "tuple": lambda v: (v, "x"),
    "dict": lambda v: {"key": v},
    "dict key": lambda v: {Plain(v): 1},
    "set": lambda v: {Plain(v)},
    "frozenset": lambda v: frozenset({Plain(v)}),
    "dataclass": Config,
    "attrs": Slotted,
    "namedtuple": lambda v: Pair(1, v),
    "partial": lambda v: functools.partial(print, v, key=2),
    "partial keyword": lambda v: functools.partial(print, file=v),
    "closure": closure_over,
    "default": default_of,
    "deferred": lambda v: lp.Deferred(print, v),
    "object": Plain,
    "bound method": lambda v: Plain(v).method,
    "property": PropertyThatMustNotRun,
    "ordered dict": lambda v: collections.OrderedDict(a=v),
    "deque": lambda v: collections.deque([0, v]),
    "defaultdict": lambda v: collections.defaultdict(list, a=v),
}


def handle() -> Any:
    return lp.CourierNode(Server).create_handle()


def paths_to(hidden: Any, value: Any, name: str) -> list[str]:
    return [f.path for f in walk(value, name, stop_at=(lp.Handle,)) if f.value is hidden]


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_f08_a_handle_is_found_inside_a(wrapper: str) -> None:
    hidden = handle()

    assert len(paths_to(hidden, WRAPPERS[wrapper](hidden), "root")) == 1


@given(st.lists(st.sampled_from(sorted(WRAPPERS)), max_size=12))
def test_a_handle_is_found_under_any_nesting_of_wrappers(names: list[str]) -> None:
    hidden = handle()
    value: Any = hidden
    for name in names:
        value = WRAPPERS[name](value)

    (path,) = paths_to(hidden, value, "root")

    assert path.startswith("root")


KEYS = st.text("abc'\"\\[]", max_size=5)


@given(
    st.recursive(st.integers(), lambda s: st.lists(s) | st.dictionaries(KEYS, s), max_leaves=10),
    st.data(),
)
def test_the_path_evaluates_to_the_value(tree: Any, data: st.DataObject) -> None:
    founds = [f for f in walk(tree, "tree") if isinstance(f.value, (list, dict))]
    if not founds:
        return
    chosen = data.draw(st.sampled_from(founds))

    assert eval(chosen.path, {"tree": tree}) == chosen.value


def test_the_path_reads_like_the_code_that_leads_there() -> None:
    hidden = handle()

    paths = paths_to(hidden, {"cfg": [Config(Pair(1, hidden))]}, "learner.args")

    assert paths == ["learner.args['cfg'][0].inner.second"]


def test_a_walk_through_100_000_levels_neither_crashes_nor_prints_them_all() -> None:
    value: Any = []
    for _ in range(100_000):
        value = [value]

    deepest = max(walk(value, "a"), key=lambda f: f.depth)

    assert deepest.depth == 100_000
    assert len(deepest.path) < 200


def test_a_container_that_contains_itself_is_found_with_its_path() -> None:
    value: list[Any] = [1, {}]
    value[1]["again"] = value

    found = contains_itself(value, "a")

    assert found is not None
    assert found.path == "a[1]['again']"


def test_a_value_used_twice_and_objects_that_refer_to_each_other_are_no_cycle() -> None:
    shared = [1]
    parent = Plain(None)
    parent.inner = [Plain(parent)]

    assert contains_itself([shared, {"a": shared}, (shared, shared), parent]) is None
    assert len(list(walk(parent))) == 3
