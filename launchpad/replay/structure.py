"""Structures of arrays: taken apart into leaves, and put together again.

    {"observation": o, "action": a}  ──flatten──▶  [o, a], structure  ──unflatten──▶  the same

Dicts, tuples, namedtuples, lists and dataclasses are structures; all else is a leaf. A structure is a nested
tuple that can be hashed: it is the same for values that are alike.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

Structure = tuple[Any, ...] | None
"""(type, keys, structures of what it holds); None for a leaf."""


def flatten(value: Any, leaves: list[Any]) -> Structure:
    """Appends the leaves of a value; returns its structure."""
    kind: Any = type(value)
    keys: Any
    held: Any
    if kind is dict:
        keys, held = tuple(value), value.values()
    elif isinstance(value, list | tuple):
        keys, held = len(value), value
    elif hasattr(kind, "__dataclass_fields__"):
        keys = tuple(each.name for each in dataclasses.fields(kind))
        held = [getattr(value, name) for name in keys]
    else:
        leaves.append(value)
        return None
    return kind, keys, tuple([flatten(each, leaves) for each in held])


def unflatten(structure: Structure, leaves: Iterator[Any]) -> Any:
    """The value with this structure and these leaves. No constructor of a user's class runs."""
    if structure is None:
        return next(leaves)
    kind, keys, parts = structure
    held = [unflatten(part, leaves) for part in parts]
    if kind is dict:
        return dict(zip(keys, held, strict=True))
    if hasattr(kind, "__dataclass_fields__"):
        made = object.__new__(kind)
        for name, each in zip(keys, held, strict=True):
            object.__setattr__(made, name, each)
        return made
    if issubclass(kind, list):
        filled = list.__new__(kind)
        filled.extend(held)
        return filled
    try:
        return tuple.__new__(kind, held)
    except TypeError:  # a type that is written in C, such as time.struct_time
        return kind(held)


def paths(structure: Structure, path: str = "") -> Iterator[str]:
    """Where each leaf is: `['observation']`, `.reward[0]`; for errors."""
    if structure is None:
        yield path or "the value"
        return
    kind, keys, parts = structure
    is_named = hasattr(kind, "__dataclass_fields__")
    names = range(keys) if isinstance(keys, int) else keys
    for name, part in zip(names, parts, strict=True):
        yield from paths(part, f"{path}.{name}" if is_named else f"{path}[{name!r}]")
