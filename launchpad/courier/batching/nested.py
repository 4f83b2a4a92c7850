"""What of a value is structure, and what are its leaves.

    tuple, namedtuple, dict, dataclass, attrs class      structure: looked into
    everything else, lists too                           a leaf: one value

A list is a leaf because its length is data: the tokens of a sentence, the moves of a game. Whoever
means structure writes a tuple.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any


def contents(value: object) -> dict[Any, Any] | None:
    """What a structure holds, by index, field or key; None for a leaf. Not to be changed."""
    kind = type(value)
    if isinstance(value, dict):
        return value
    if isinstance(value, tuple):
        names = range(len(value)) if kind is tuple else getattr(kind, "_fields", None)
        return None if names is None else dict(zip(names, value, strict=True))
    fields = _fields(kind)
    return None if fields is None else {name: getattr(value, name) for name in fields}


def columns(values: Sequence[Any]) -> dict[Any, Sequence[Any]] | None:
    """What structures of one type hold: by index, field or key that of all. None if they differ in these."""
    first = values[0]
    held = contents(first)
    if held is None:
        return None
    if isinstance(first, dict):
        if any(value.keys() != held.keys() for value in values):
            return None
        return {key: [value[key] for value in values] for key in held}
    if isinstance(first, tuple):
        is_even = all(len(value) == len(first) for value in values)
        return dict(zip(held, zip(*values, strict=True), strict=True)) if is_even else None
    return {name: [getattr(value, name) for value in values] for name in held}


def rebuild(like: Any, held: dict[Any, Any]) -> Any:
    """The same structure as `like`, holding something else: `contents(rebuild(x, held)) == held`.

    No constructor and no `__post_init__` runs: they may not take batches for what they hold.
    """
    kind = type(like)
    if kind is tuple:
        return tuple(held.values())
    if isinstance(like, tuple):
        return kind._make(held.values())
    if kind is dict:
        return held
    twin = copy.copy(like)
    if isinstance(like, dict):
        twin.update(held)
        return twin
    for name, value in held.items():
        object.__setattr__(twin, name, value)  # it may be frozen
    return twin


def step(value: object, key: object) -> str:
    """How one writes the way from a structure to what it holds: `[0]`, `.reward`, `['obs']`."""
    if isinstance(value, dict) or type(value) is tuple:
        return f"[{key!r}]"
    return f".{key}"


def name(kind: type) -> tuple[str, str]:
    """Says which type it is: one that travelled by value is another object for each process it came from."""
    return kind.__module__, kind.__qualname__


def _fields(kind: type) -> tuple[str, ...] | None:
    if hasattr(kind, "__dataclass_fields__"):
        import dataclasses

        return tuple(field.name for field in dataclasses.fields(kind))
    attributes = getattr(kind, "__attrs_attrs__", None)
    return None if attributes is None else tuple(each.name for each in attributes)
