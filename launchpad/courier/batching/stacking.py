"""Many values of one kind as one value, and back.

    stack([(obs1, "a"), (obs2, "b")])          ──▶ (array of [obs1, obs2], ["a", "b"])
    unstack((array of [q1, q2], None), 2)      ──▶ [(q1, None), (q2, None)]

    a leaf                                             stacked
    -------------------------------------------------  ------------------------------------------
    numpy array or scalar; number; bool                a numpy array with a new first axis
    torch tensor, jax array                            its own kind, with a new first axis
    None                                               None
    all else: str, bytes, list, set, objects           a list, one item per value

On the way back, arrays and lists are taken apart along their first axis, and everybody gets None
where None is. No array library is imported before a value needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from typing import Any

from launchpad.courier.batching import nested

_NUMBER, _BOOL, _ANY = "a number", "a bool", "any object"
_PLAIN: dict[type, Hashable] = {float: _NUMBER, complex: _NUMBER, bool: _BOOL, type(None): None}
_PLAIN |= {kind: kind.__name__ for kind in (str, bytes, bytearray, list, set, frozenset)}
_HUGE = "an int that 64 bits cannot hold"
_NUMBERS = frozenset({("i", 8), ("f", 8), ("c", 16)})  # what numpy makes of Python's numbers


def describe(value: object) -> Hashable:
    """Equal for values that can be stacked: of the same structure, shapes and dtypes."""
    if (kind := type(value)) in _PLAIN:
        return _PLAIN[kind]
    held = nested.contents(value)
    if held is None:
        return _describe_leaf(value)
    return nested.name(kind), frozenset([(key, describe(each)) for key, each in held.items()])


def are_alike(values: Sequence[Any]) -> bool:
    """Whether all are described alike. As a rule they are, and that is seen without describing each."""
    kind = type(values[0])
    if all(type(value) is kind for value in values):
        if kind in _PLAIN:
            return True
        if kind is _type("numpy", "ndarray") and len({(v.dtype, v.shape) for v in values}) == 1:
            return True
        columns = nested.columns(values)
        if columns is not None:
            return all(are_alike(column) for column in columns.values())
    return len({describe(value) for value in values}) == 1


def stack(values: Sequence[Any]) -> Any:
    """One value that has those of all `values`, which are described alike, in place of each leaf."""
    columns = nested.columns(values)
    if columns is None:
        return _stack_leaves(values)
    return nested.rebuild(values[0], {key: stack(column) for key, column in columns.items()})


def unstack(value: Any, n: int, path: str = "result") -> list[Any]:
    """Takes a stacked value apart into `n`. ValueError, with the path, where it does not have `n`."""
    held = nested.contents(value)
    if held is None:
        return _unstack_leaf(value, n, path)
    columns = [unstack(each, n, path + nested.step(value, key)) for key, each in held.items()]
    rows = zip(*columns, strict=True) if columns else [()] * n
    return [nested.rebuild(value, dict(zip(held, row, strict=True))) for row in rows]


def difference(expected: object, given: object, path: str) -> str:
    """Where the two differ, in words; empty for values that can be stacked."""
    ours, theirs = nested.contents(expected), nested.contents(given)
    if ours is None or theirs is None or _outline(expected) != _outline(given):
        is_alike = describe(expected) == describe(given)
        return "" if is_alike else f"{path}: {_words(expected)} expected, {_words(given)} given"
    if ours.keys() != theirs.keys():
        return f"{path}: {_differing_keys(ours, theirs)}"
    for key in ours:
        found = difference(ours[key], theirs[key], path + nested.step(expected, key))
        if found:
            return found
    return ""


def _describe_leaf(value: object) -> Hashable:
    library = _library_of(value)
    if library is not None:
        return _describe_array(value) if library == "numpy" else _words(value)
    if isinstance(value, bool | int | float | complex):
        return _HUGE if isinstance(value, int) and _is_huge(value) else _NUMBER
    return _ANY


def _describe_array(value: Any) -> Hashable:
    dtype, shape = value.dtype, value.shape
    if not shape and dtype.kind == "b":
        return _BOOL
    if not shape and (dtype.kind, dtype.itemsize) in _NUMBERS:
        return _NUMBER
    return dtype.kind if dtype.kind in "SU" else dtype, shape  # strings may differ in length


def _stack_leaves(values: Sequence[Any]) -> Any:
    if values[0] is None:
        return None
    library = _library_of(values[0])
    if library == "numpy" and values[0].dtype.kind in "OV":
        return _numpy().stack(values)
    if library == "numpy" or describe(values[0]) in (_NUMBER, _BOOL):
        return _numpy().array(values)  # as np.stack does, in a fraction of its time
    if library == "torch":
        return sys.modules["torch"].stack(list(values))
    if library == "jax":
        return sys.modules["jax"].numpy.stack(values)
    return list(values)


def _unstack_leaf(value: Any, n: int, path: str) -> list[Any]:
    if value is None:
        return [None] * n
    library = _library_of(value)
    if library is None and not isinstance(value, list):
        raise ValueError(
            f"{path} is {_words(value)}, which cannot be divided among {n} requests. Return a list or an"
            " array with one item per request; None, or a tuple, dict or dataclass of such, will do too."
        )
    shape = (len(value),) if library is None else value.shape
    if not shape or shape[0] != n:
        raise ValueError(f"{path} is {_words(value)}, where one item for each of {n} was expected")
    return _rows(value, library)


def _rows(value: Any, library: str | None) -> list[Any]:
    if library == "torch":
        return [row.clone() for row in value.unbind(0)]  # a view would be sent with all the others
    if library == "jax":
        return list(_numpy().asarray(value))  # each slice of a jax array is a program of its own
    return list(value)


def _library_of(value: object) -> str | None:
    """`numpy`, `torch` or `jax` for their arrays. What is not loaded has made no value."""
    kind = type(value)
    if kind is _type("numpy", "ndarray"):
        return "numpy"
    if kind.__module__ == "builtins":
        return None
    if kind is _type("numpy", "memmap") or issubclass(kind, _type("numpy", "generic")):
        return "numpy"  # other kinds of ndarray are no friends of np.stack
    if issubclass(kind, _type("torch", "Tensor")):
        return "torch"
    return "jax" if isinstance(value, _type("jax", "Array")) else None


def _type(module: str, name: str) -> Any:
    """A type if it is loaded; else `()`, which nothing is an instance of."""
    return getattr(sys.modules.get(module), name, ())


def _numpy() -> Any:
    try:
        import numpy
    except ImportError as error:
        raise ImportError(
            "batches of numbers are numpy arrays, and numpy is not installed here: pip install numpy"
        ) from error
    return numpy


def _words(value: Any) -> str:
    if nested.contents(value) is None and (library := _library_of(value)) is not None:
        kind = "an array" if library == "numpy" else f"a {library} array"
        place = f" on {value.device}" if library == "torch" else ""
        return f"{kind} of {value.dtype} with shape {tuple(value.shape)}{place}"
    if value is None or isinstance(value, dict):
        return "None" if value is None else f"a dict with {_names(value)}"
    if isinstance(value, list) or type(value) is tuple:
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, int) and _is_huge(value):
        return _HUGE
    return f"a value of type {_name_of(value)}"


def _outline(value: Any) -> Hashable:
    return nested.name(type(value)), len(value) if type(value) is tuple else None


def _name_of(value: object) -> str:
    module, name = nested.name(type(value))
    return name if module == "builtins" else f"{module}.{name}"


def _is_huge(value: int) -> bool:
    return not -(2**63) <= value < 2**63


def _differing_keys(ours: dict[Any, Any], theirs: dict[Any, Any]) -> str:
    missing = {key: None for key in ours if key not in theirs}
    unknown = {key: None for key in theirs if key not in ours}
    parts = [f"without {_names(missing)}"] * bool(missing)
    parts += [f"with {_names(unknown)}"] * bool(unknown)
    return f"{' and '.join(parts)}, unlike the others"


def _names(keys: dict[Any, Any]) -> str:
    import reprlib

    return reprlib.repr(list(keys)).strip("[]") or "no keys"
