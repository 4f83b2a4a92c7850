"""Trees: values in dicts, lists, tuples, named tuples and dataclasses, as jax and torch call pytrees.

What is none of these is a leaf. Dicts are gone through by key, not in the order in which they were filled:
that may differ between ranks.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any


def leaves_of(tree: Any) -> Iterator[Any]:
    """The leaves, in an order that depends on the structure only. None is no leaf."""
    if tree is None:
        return
    if isinstance(tree, dict):
        for key in _keys(tree):
            yield from leaves_of(tree[key])
    elif isinstance(tree, list | tuple):
        for each in tree:
            yield from leaves_of(each)
    elif _is_dataclass(tree):
        for field in dataclasses.fields(tree):
            yield from leaves_of(getattr(tree, field.name))
    else:
        yield tree


def rebuilt(tree: Any, leaves: Iterator[Any]) -> Any:
    """A tree of the same structure with these leaves."""
    if tree is None:
        return None
    if isinstance(tree, dict):
        values = {key: rebuilt(tree[key], leaves) for key in _keys(tree)}
        new = copy.copy(tree)
        new.update(values)
        return new
    if isinstance(tree, list):
        new_list = copy.copy(tree)
        new_list[:] = [rebuilt(each, leaves) for each in tree]
        return new_list
    if isinstance(tree, tuple):
        parts = [rebuilt(each, leaves) for each in tree]
        try:
            return tuple.__new__(type(tree), parts)  # a subclass may have a constructor of its own
        except TypeError:
            return tuple(parts)  # a type that is written in C, such as time.struct_time
    if _is_dataclass(tree):
        new = copy.copy(tree)
        for field in dataclasses.fields(tree):
            object.__setattr__(new, field.name, rebuilt(getattr(tree, field.name), leaves))
        return new
    return next(leaves)


def described(tree: Any, leaves: Iterator[str]) -> str:
    """Return the structure as text, with these texts for its leaves: `{'w': float32[2, 3], 'b': float32}`."""
    if tree is None:
        return "None"
    if isinstance(tree, dict):
        return _in("{}", (f"{key!r}: {described(tree[key], leaves)}" for key in _keys(tree)))
    if isinstance(tree, list):
        return _in("[]", (described(each, leaves) for each in tree))
    names: Iterable[str]
    if isinstance(tree, tuple):
        names = getattr(tree, "_fields", ())
        if not names:
            return _in("()", (described(each, leaves) for each in tree))
    elif _is_dataclass(tree):
        names = [field.name for field in dataclasses.fields(tree)]
    else:
        return next(leaves)
    fields = (f"{name}={described(getattr(tree, name), leaves)}" for name in names)
    return type(tree).__qualname__ + _in("()", fields)


def _in(brackets: str, parts: Iterable[str]) -> str:
    return f"{brackets[0]}{', '.join(parts)}{brackets[1]}"


def _keys(tree: dict[Any, Any]) -> list[Any]:
    plain = (str, int, bytes, float, bool)
    return sorted(tree, key=lambda k: (type(k).__name__, k if type(k) in plain else repr(k)))


def _is_dataclass(tree: object) -> bool:
    return dataclasses.is_dataclass(tree) and not isinstance(tree, type)
