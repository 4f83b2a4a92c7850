"""Nested values: the rule that decides what is a container and what is a leaf.

    a container                                       what it holds, in this order
    ------------------------------------------------  ------------------------------------------
    dict, and its subclasses                          its values, sorted by key
    list, tuple, and their subclasses                 its items
    namedtuple; instance of a dataclass or of attrs   its fields
    None                                              nothing

Everything else is a leaf: arrays and tensors, numbers, strings, sets, members of an enum, other objects.
The values of dicts are sorted, so that processes agree even if each filled its dict in another order.
A rebuilt dict has its original order again. Lists and dicts can also be data: batches and shards take a list
as a column of entries, and `lp.sharded` takes a dict as a table.

    {"b": [x, y], "a": z}  ──flatten──▶  [z, x, y] and its structure  ──unflatten──▶  the same

This module imports nothing from its own package, and doesn't import numpy before there are arrays.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import functools
import sys
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

Structure = tuple[Any, ...] | None
"""(type, keys, structures of the contents, keys of a dict in the dict's own order); None for a leaf.

A structure can be hashed and pickled. For a container whose items have no names, `keys` is their number.
"""

Spec = tuple[str, tuple[int, ...]]
"""Dtype and shape of an array."""

_DICT = "dict"
_LIST = "list"
_TUPLE = "tuple"
_NONE = "None"


@functools.lru_cache(512)
def _form_of(kind: Any) -> str | tuple[str, ...] | None:
    """Return how to take apart instances of a type: a form, or the names of fields. None means a leaf."""
    if issubclass(kind, enum.Enum):
        return None
    if kind is type(None):
        return _NONE
    if issubclass(kind, dict):
        return _DICT
    if issubclass(kind, list):
        return _LIST
    if issubclass(kind, tuple):
        return tuple(getattr(kind, "_fields", ())) or _TUPLE
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    attributes = getattr(kind, "__attrs_attrs__", None)
    return None if attributes is None else tuple(attribute.name for attribute in attributes)


def contents(value: Any) -> tuple[Any, Any] | None:
    """Return the keys and the values of a container, or None for a leaf.

    For a dict, the keys are the dict's own, sorted. For fields they are the fields' names. For other
    containers, the number of values is returned instead of keys.
    """
    kind: Any = type(value)
    form = _form_of(kind)
    if form is None:
        return None
    if form is _DICT:
        keys = sorted_keys(value)
        return keys, [value[key] for key in keys]
    if form is _LIST or form is _TUPLE:
        return len(value), value
    if form is _NONE:
        return 0, ()
    if isinstance(value, tuple):
        return form, value
    return form, [getattr(value, name) for name in form]


def refilled(like: Any, values: Any) -> Any:
    """Return a container like this one with other values, which are in the order of `contents`.

    No constructor of a user's class runs, because it may refuse the new contents. The container's other
    attributes, such as the factory of a defaultdict, are kept.
    """
    kind: Any = type(like)
    if kind is type(None):
        return None
    if kind is dict:
        return _dict(sorted_keys(like), values, like)
    if isinstance(like, tuple):
        return _with_attributes(_tuple(kind, values), like)
    new = copy.copy(like)
    if new is like:
        # An immutable class may return the instance itself as its copy.
        new = _with_attributes(kind.__new__(kind), like)
    return _filled(new, _keys_of(like), values, like)


def flatten(value: Any, leaves: list[Any]) -> Structure:
    """Append the leaves of a value, and return its structure."""
    keys_and_values = contents(value)
    if keys_and_values is None:
        leaves.append(value)
        return None
    keys, values = keys_and_values
    parts = tuple([flatten(item, leaves) for item in values])
    order = tuple(value) if isinstance(value, dict) else ()
    return type(value), keys, parts, order


def unflatten(structure: Structure, leaves: Iterator[Any]) -> Any:
    """Return the value with this structure and these leaves. No constructor of a user's class runs.

    A structure records the types of containers and their contents. Other attributes of containers are lost.
    """
    if structure is None:
        return next(leaves)
    kind, keys, parts, order = structure
    values = [unflatten(part, leaves) for part in parts]
    if kind is dict:
        return _dict(keys, values, order)
    if kind is list:
        return values
    if kind is type(None):
        return None
    if issubclass(kind, tuple):
        return _tuple(kind, values)
    return _filled(kind.__new__(kind), keys, values, order)


def rebuilt(value: Any, leaves: Iterator[Any]) -> Any:
    """Return a value like this one with other leaves. Containers keep their other attributes."""
    keys_and_values = contents(value)
    if keys_and_values is None:
        return next(leaves)
    return refilled(value, [rebuilt(item, leaves) for item in keys_and_values[1]])


def without_order(structure: Structure) -> Structure:
    """Return the structure without the order of dicts. It is equal for values that can be stacked."""
    if structure is None:
        return None
    kind, keys, parts, _ = structure
    return kind, keys, tuple([without_order(part) for part in parts]), ()


def paths(structure: Structure, path: str = "") -> Iterator[str]:
    """Yield the path of each leaf for error messages, such as `['observation']` or `.reward[0]`."""
    if structure is None:
        yield path or "the value"
        return
    kind, keys, parts, _ = structure
    for key, part in zip(names_of(keys), parts, strict=True):
        yield from paths(part, path + step(kind, key))


def path_of(value: Any, number: int) -> str:
    """Return the path of the leaf with this number."""
    return list(paths(flatten(value, [])))[number]


def step(kind: type, key: Any) -> str:
    """Return the step from a container to one of its values, as text: `[0]`, `.reward`, `['obs']`."""
    is_field = isinstance(key, str) and not issubclass(kind, dict)
    return f".{key}" if is_field else f"[{key!r}]"


def described(structure: Structure, texts: Iterator[str]) -> str:
    """Return the structure as text. `texts` has a text per leaf: `{'w': float32[2, 3], 'b': float32}`."""
    if structure is None:
        return next(texts)
    kind, keys, parts, _ = structure
    inner = [described(part, texts) for part in parts]
    if kind is type(None):
        return "None"
    if issubclass(kind, dict):
        pairs = [f"{key!r}: {text}" for key, text in zip(keys, inner, strict=True)]
        return f"{{{', '.join(pairs)}}}"
    if isinstance(keys, int):
        text = ", ".join(inner)
        return f"[{text}]" if issubclass(kind, list) else f"({text})"
    pairs = [f"{name}={text}" for name, text in zip(keys, inner, strict=True)]
    return f"{kind.__qualname__}({', '.join(pairs)})"


def names_of(keys: Any) -> Iterable[Any]:
    """Return the keys of a container, or 0, 1, 2, … if its items have no names."""
    return range(keys) if isinstance(keys, int) else keys


def is_masked(leaf: Any) -> bool:
    """Return True if the leaf is a masked array. Code that would drop the mask refuses these."""
    masked = sys.modules.get("numpy.ma")  # numpy imports this module when a program first uses it
    return masked is not None and isinstance(leaf, masked.MaskedArray)


def refusal_of_masked(subject: str) -> str:
    """Return the text that follows a leaf's path in an error about a masked array."""
    return (
        f"is a masked array: {subject} would lose its mask. Give its data and its mask as two arrays, or"
        " fill it: array.filled(0)"
    )


def spec_of(array: Any) -> Spec:
    """Return dtype and shape of an array."""
    return array.dtype.str, array.shape


def spec_text(dtype: Any, shape: Iterable[int]) -> str:
    """Return dtype and shape as text for people, `float64[2, 3]`."""
    lengths = list(shape)
    return f"{_name_of(dtype)}{lengths}" if lengths else _name_of(dtype)


_name_of = functools.cache(str)  # computing a dtype's name takes longer than copying 64 kB


def sorted_keys(keys: Iterable[Any]) -> tuple[Any, ...]:
    """Return the keys of a dict in an order that depends only on the keys.

    Raises TypeError if two keys have the same text, because then there is no such order.
    """
    if set(map(type, keys)) <= {str}:
        return tuple(sorted(keys))
    ranked = sorted(((_rank(key), key) for key in keys), key=lambda pair: pair[0])
    for (rank, key), (next_rank, _) in pairwise(ranked):
        if rank == next_rank:
            raise TypeError(
                f"two keys of a dict are both written {key!r}, and processes could not agree on their order:"
                " give them different texts (__repr__), or use strings or numbers as keys"
            )
    return tuple(key for _, key in ranked)


def _rank(key: Any) -> tuple[str, Any]:
    """Return the value that a key is sorted by. It is equal for equal keys, such as 1 and True."""
    if isinstance(key, int | float):
        return "number", key
    if isinstance(key, str | bytes):
        return ("str" if isinstance(key, str) else "bytes"), key
    return type(key).__name__, repr(key)


def _keys_of(container: Any) -> Any:
    keys_and_values = contents(container)
    return keys_and_values[0] if keys_and_values is not None else 0


def _dict(keys: Iterable[Any], values: Iterable[Any], order: Iterable[Any]) -> dict[Any, Any]:
    by_key = dict(zip(keys, values, strict=True))
    return {key: by_key[key] for key in order}


def _tuple(kind: Any, values: Any) -> Any:
    if kind is tuple:
        return tuple(values)
    try:
        return tuple.__new__(kind, values)  # a subclass may have a constructor of its own
    except TypeError:
        pass
    try:
        return kind(values)  # a type that is written in C, such as time.struct_time
    except TypeError:
        return tuple(values)  # torch.Size holds nothing but ints


def _filled(new: Any, keys: Any, values: Any, order: Iterable[Any]) -> Any:
    """Fill a container, which is a copy or empty, with these values, and return it."""
    if isinstance(new, dict):
        for key, value in _dict(keys, values, order).items():
            new[key] = value
    elif isinstance(new, list):
        new[:] = values
    else:
        for name, value in zip(keys, values, strict=True):
            object.__setattr__(new, name, value)  # `new` may be a frozen dataclass
    return new


def _with_attributes(new: Any, like: Any) -> Any:
    attributes = getattr(like, "__dict__", None)
    if attributes and type(new) is type(like):
        new.__dict__.update(attributes)
    return new
