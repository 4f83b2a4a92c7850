"""A walk through a node's arguments. It finds handles, and the path to a value that cannot be sent.

`children` lists the objects that an object holds, each with the Python expression that leads to it. `walk`
follows them without recursion, so that deep nesting is safe. It never calls user code: it reads `__dict__`
instead of getting attributes.

    learner.args[1].cfg['lock']
    └─ root ┘└─ steps ────────┘
"""

from __future__ import annotations

import collections
import contextlib
import functools
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Step = tuple[str, Any]

_VALUES = (int, float, complex, bool, str, bytes, bytearray, memoryview, range, slice)
_OF_CODE = (types.ModuleType, types.BuiltinFunctionType, types.CodeType, types.GetSetDescriptorType)
_ATOMS = frozenset[type]((type, type(None), type(...), property, *_VALUES, *_OF_CODE))


class Opaque:
    """A base class for objects that `walk` never looks into."""


@dataclass(frozen=True, slots=True)
class Found:
    """An object found on a walk, and the path to it as a linked list (cheap to make, rarely printed)."""

    value: Any
    step: str
    parent: Found | None = None
    depth: int = 0

    @property
    def path(self) -> str:
        """The path from the root, `learner-0.args[1].cfg`. Its middle is left out if it has over 20 steps."""
        steps: list[str] = []
        place: Found | None = self
        while place is not None:
            steps.append(place.step)
            place = place.parent
        steps.reverse()
        if len(steps) > 20:
            steps[10:-5] = [f"…({len(steps) - 15:,} more)…"]
        return "".join(steps)


def walk(root: Any, name: str = "", stop_at: tuple[type, ...] = ()) -> Iterator[Found]:
    """Yield each object that is reachable from `root` once, parents before children.

    Numbers, text, classes and other atoms are left out. Objects of the types in `stop_at`, and `Opaque`
    objects, are yielded, but not looked into.
    """
    visited: set[int] = set()
    # Keep what was seen: ids are unique only while their objects exist.
    keep: list[Any] = []
    stack = [Found(root, name)]
    while stack:
        place = stack.pop()
        value = place.value
        if type(value) in _ATOMS or isinstance(value, type) or id(value) in visited:
            continue
        visited.add(id(value))
        keep.append(value)
        yield place
        if isinstance(value, (*stop_at, Opaque)):
            continue
        inner = [
            Found(c, s, place, place.depth + 1) for s, c in children(value) if type(c) not in _ATOMS
        ]
        stack.extend(reversed(inner))


def contains_itself(root: Any, name: str = "") -> Found | None:
    """Find a list, tuple, deque, dict or set that contains itself, directly or through other containers.

    Return None if there is no such container. Other kinds of objects may refer to each other.
    """
    open_ids: set[int] = set()
    closed_ids: set[int] = set()
    stack: list[tuple[Found, bool]] = [(Found(root, name), False)]
    while stack:
        place, is_leaving = stack.pop()
        key = id(place.value)
        if is_leaving:
            open_ids.discard(key)
            closed_ids.add(key)
        elif key in open_ids:
            return place
        elif type(place.value) in _CONTAINERS and key not in closed_ids:
            open_ids.add(key)
            stack.append((place, True))
            stack.extend(
                (Found(c, s, place), False)
                for s, c in children(place.value)
                if type(c) in _CONTAINERS
            )
    return None


def children(value: Any) -> Iterator[Step]:
    """Yield the objects that `value` holds, each with the expression that leads to it."""
    if isinstance(value, (list, tuple, collections.deque)):
        fields = getattr(type(value), "_fields", None)
        for i, item in enumerate(value):
            yield (f".{fields[i]}" if fields and i < len(fields) else f"[{i}]"), item
    elif isinstance(value, dict):
        for key, item in value.items():
            yield f"[{_short(key)}]", item
            if type(key) not in _ATOMS:
                yield f"<key {_short(key)}>", key
    elif isinstance(value, (set, frozenset)):
        for item in value:
            yield "{…}", item
    elif isinstance(value, functools.partial):
        yield ".func", value.func
        yield ".args", value.args
        yield ".keywords", value.keywords
    elif isinstance(value, types.FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # not assigned yet
                yield f".<closure {name}>", cell.cell_contents
        yield ".__defaults__", value.__defaults__
        yield ".__kwdefaults__", value.__kwdefaults__
    elif isinstance(value, types.MethodType):
        yield ".__self__", value.__self__
        yield ".__func__", value.__func__
    yield from _attributes(value)


def _attributes(value: Any) -> Iterator[Step]:
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        attributes = None
    for name, item in dict(attributes).items() if isinstance(attributes, dict) else ():
        yield f".{name}", item
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            member = cls.__dict__.get(name)
            if isinstance(member, types.MemberDescriptorType):
                with contextlib.suppress(AttributeError):  # never assigned
                    yield f".{name}", member.__get__(value)


def _short(key: Any) -> str:
    text = repr(key) if type(key) in _ATOMS else f"<{type(key).__name__}>"
    return text if len(text) <= 40 else text[:37] + "…"


_CONTAINERS = frozenset({list, tuple, dict, set, frozenset, collections.deque})
