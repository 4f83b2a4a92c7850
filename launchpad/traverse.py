"""Walking through a node's arguments: where the handles are, and the path to a culprit.

`children` says what an object holds and how a person would write the way to it. `walk` follows it without
recursion, so that depth is no danger, and never calls user code: it reads `__dict__`, not attributes.

    learner.args[1].cfg['lock']
    └─ root ┘└─ steps ────────┘
"""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Step = tuple[str, Any]

_ATOMS: frozenset[type] = frozenset(
    {
        int,
        float,
        complex,
        bool,
        str,
        bytes,
        bytearray,
        memoryview,
        range,
        slice,
        type(None),
        type,
        type(...),
    }
    | {
        types.ModuleType,
        types.BuiltinFunctionType,
        types.CodeType,
        types.GetSetDescriptorType,
        property,
    }
)


@dataclass(frozen=True, slots=True)
class Found:
    """An object met on a walk, and the way to it as a linked list (cheap to make, printed rarely)."""

    value: Any
    step: str
    parent: Found | None = None
    depth: int = 0

    @property
    def path(self) -> str:
        """The way from the root, `learner-0.args[1].cfg`; the middle of a very long one is left out."""
        steps: list[str] = []
        here: Found | None = self
        while here is not None:
            steps.append(here.step)
            here = here.parent
        steps.reverse()
        if len(steps) > 20:
            steps[10:-5] = [f"…({len(steps) - 15:,} more)…"]
        return "".join(steps)


def walk(root: Any, name: str = "", stop_at: tuple[type, ...] = ()) -> Iterator[Found]:
    """Every object reachable from `root`, each once, parents before children, atoms left out.

    What objects of the types in `stop_at` hold is not looked into.
    """
    seen: set[int] = set()
    keep: list[Any] = []  # ids stay unique only while the objects live
    stack = [Found(root, name)]
    while stack:
        found = stack.pop()
        value = found.value
        if type(value) in _ATOMS or isinstance(value, type) or id(value) in seen:
            continue
        seen.add(id(value))
        keep.append(value)
        yield found
        if isinstance(value, stop_at):
            continue
        inner = [
            Found(c, s, found, found.depth + 1) for s, c in children(value) if type(c) not in _ATOMS
        ]
        stack.extend(reversed(inner))


def contains_itself(root: Any, name: str = "") -> Found | None:
    """A list, tuple, deque, dict or set that holds itself, directly or through others of these, if any does.

    Objects that refer to each other are ordinary and are no concern here.
    """
    open_ids: set[int] = set()
    done: set[int] = set()
    stack: list[tuple[Found, bool]] = [(Found(root, name), False)]
    while stack:
        found, leaving = stack.pop()
        key = id(found.value)
        if leaving:
            open_ids.discard(key)
            done.add(key)
        elif key in open_ids:
            return found
        elif type(found.value) in _CONTAINERS and key not in done:
            open_ids.add(key)
            stack.append((found, True))
            stack.extend(
                (Found(c, s, found), False)
                for s, c in children(found.value)
                if type(c) in _CONTAINERS
            )
    return None


def children(value: Any) -> Iterator[Step]:
    """What `value` holds, each with the text that leads to it."""
    for kind, rule in _RULES:
        if isinstance(value, kind):
            yield from rule(value)
    yield from _attributes(value)


def _sequence(value: Any) -> Iterator[Step]:
    fields = getattr(type(value), "_fields", None)
    for i, item in enumerate(value):
        yield (f".{fields[i]}" if fields and i < len(fields) else f"[{i}]"), item


def _dict(value: dict[Any, Any]) -> Iterator[Step]:
    for key, item in value.items():
        yield f"[{_short(key)}]", item
        if type(key) not in _ATOMS:
            yield f"<key {_short(key)}>", key


def _set(value: Any) -> Iterator[Step]:
    for item in value:
        yield "{…}", item


def _partial(value: functools.partial[Any]) -> Iterator[Step]:
    yield ".func", value.func
    yield ".args", value.args
    yield ".keywords", value.keywords


def _function(value: types.FunctionType) -> Iterator[Step]:
    for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
        try:
            yield f".<closure {name}>", cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    yield ".__defaults__", value.__defaults__
    yield ".__kwdefaults__", value.__kwdefaults__


def _method(value: types.MethodType) -> Iterator[Step]:
    yield ".__self__", value.__self__
    yield ".__func__", value.__func__


def _attributes(value: Any) -> Iterator[Step]:
    attributes = _own_dict(value)
    for name in attributes or ():
        yield f".{name}", attributes[name]
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            yield from _slot(value, cls, name)


def _own_dict(value: Any) -> dict[str, Any]:
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return dict(found) if isinstance(found, dict) else {}


def _slot(value: Any, cls: type, name: str) -> Iterator[Step]:
    member = cls.__dict__.get(name)
    if isinstance(member, types.MemberDescriptorType):
        try:
            yield f".{name}", member.__get__(value)
        except AttributeError:  # never assigned
            return


def _short(key: Any) -> str:
    text = repr(key) if type(key) in _ATOMS else f"<{type(key).__name__}>"
    return text if len(text) <= 40 else text[:37] + "…"


_CONTAINERS = frozenset({list, tuple, dict, set, frozenset, collections.deque})
_RULES: tuple[tuple[type | tuple[type, ...], Callable[[Any], Iterator[Step]]], ...] = (
    ((list, tuple, collections.deque), _sequence),
    (dict, _dict),
    ((set, frozenset), _set),
    (functools.partial, _partial),
    (types.FunctionType, _function),
    (types.MethodType, _method),
)
