"""Many values of one kind as one value, and back.

    stack([(obs1, "a"), (obs2, "b")])          ──▶ (array of [obs1, obs2], ["a", "b"])
    unstack((array of [q1, q2], None), 2)      ──▶ [(q1, None), (q2, None)]

    a leaf                                             stacked
    -------------------------------------------------  ------------------------------------------
    numpy array or scalar; number; bool                a numpy array with a new first axis
    torch tensor, jax array                            its own kind, with a new first axis; jax's, where
                                                       some are jax's and some numpy's
    None                                               None
    all else: str, bytes, list, set, objects           a list, one item per value

What a tuple, namedtuple, dict, dataclass or attrs class holds is looked into; everything else is a leaf.
A list is a leaf because its length is data: the tokens of a sentence, the moves of a game. To mean
structure, write a tuple.

On the way back, arrays and lists are taken apart along their first axis, and each request gets None
where None is. No array library is imported before a value needs it.
"""

from __future__ import annotations

import copy
import dataclasses
import reprlib
import sys
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

# Ints and floats are no kind in common: an int beyond 2**53 would be another number as a float, and a method
# would get floats or ints depending on what other callers have sent.
_INT = "an int"
_FLOAT = "a float"
_COMPLEX = "a complex"
_BOOL = "a bool"
_ANY = "any object"
_SCALARS = (_INT, _FLOAT, _COMPLEX, _BOOL)
_PLAIN: dict[type, Hashable] = {float: _FLOAT, complex: _COMPLEX, bool: _BOOL, type(None): None}
_PLAIN |= {kind: kind.__name__ for kind in (str, bytes, bytearray, list, set, frozenset)}
_HUGE = "an int that 64 bits cannot hold"
# What numpy makes of Python's numbers.
_NUMBERS = {("i", 8): _INT, ("f", 8): _FLOAT, ("c", 16): _COMPLEX}


def describe(value: Any) -> Hashable:
    """Equal for values that can be stacked: of the same structure, shapes and dtypes."""
    if (kind := type(value)) in _PLAIN:
        return _PLAIN[kind]
    if (held := _contents(value)) is not None:
        return _type_name(kind), frozenset([(key, describe(each)) for key, each in held.items()])
    library = _library_of(value)
    if library == "numpy":
        dtype, shape = value.dtype, value.shape
        if not shape and dtype.kind == "b":
            return _BOOL
        if not shape and (dtype.kind, dtype.itemsize) in _NUMBERS:
            return _NUMBERS[dtype.kind, dtype.itemsize]
        return dtype.kind if dtype.kind in "SU" else dtype, shape  # strings may differ in length
    if library == "jax":
        return value.dtype, value.shape  # as numpy's: jax takes them together
    if library is not None:
        return _words(value)
    if isinstance(value, int):
        return _HUGE if _is_huge(value) else _INT
    if isinstance(value, float):
        return _FLOAT
    return _COMPLEX if isinstance(value, complex) else _ANY


def are_alike(values: Sequence[Any]) -> bool:
    """Whether all are described alike. As a rule they are, and that is seen without describing each."""
    kind = type(values[0])
    if all(type(value) is kind for value in values):
        if kind in _PLAIN:
            return True
        if kind is _type("numpy", "ndarray") and len({(v.dtype, v.shape) for v in values}) == 1:
            return True
        if (columns := _columns(values)) is not None:
            return all(are_alike(column) for column in columns.values())
    return len({describe(value) for value in values}) == 1


def stack(values: Sequence[Any]) -> Any:
    """One value that has those of all `values`, which are described alike, in place of each leaf."""
    if (columns := _columns(values)) is not None:
        return _rebuild(values[0], {key: stack(column) for key, column in columns.items()})
    if values[0] is None:
        return None
    library = _library_of(values[0])
    if library == "numpy" and "jax" in sys.modules and "jax" in map(_library_of, values):
        library = "jax"
    if library == "numpy" and values[0].dtype.kind in "OV":
        return _numpy().stack(values)
    if library == "numpy" or describe(values[0]) in _SCALARS:
        return _numpy().array(values)  # as np.stack does, in a fraction of its time
    if library == "torch":
        return sys.modules["torch"].stack(list(values))
    if library == "jax":
        return sys.modules["jax"].numpy.stack(values)
    return list(values)


def unstack(value: Any, n: int, path: str = "result") -> list[Any]:
    """Takes a stacked value apart into `n`. ValueError, with the path, where it does not have `n`.

    Arrays are copied: a result is sent when the method runs for the next batch already, and it may fill the
    array that it has returned again.
    """
    if (held := _contents(value)) is not None:
        columns = [unstack(each, n, path + _step(value, key)) for key, each in held.items()]
        rows = zip(*columns, strict=True) if columns else [()] * n
        return [_rebuild(value, dict(zip(held, row, strict=True))) for row in rows]
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
    if library == "torch":
        return [row.clone() for row in value.unbind(0)]  # a view would be sent with all the others
    if library == "jax":
        return list(_numpy().asarray(value))  # each slice of a jax array is a program of its own
    if library == "numpy":
        return list(value.copy())
    is_array = _type("numpy", "ndarray")
    return [each.copy() if type(each) is is_array else each for each in value]


def difference(expected: object, given: object, path: str) -> str:
    """Where the two differ, in words; empty for values that can be stacked."""
    ours, theirs = _contents(expected), _contents(given)
    is_other = _type_name(type(expected)) != _type_name(type(given))
    if (
        ours is None
        or theirs is None
        or is_other
        or (type(expected) is tuple and len(ours) != len(theirs))
    ):
        is_alike = describe(expected) == describe(given)
        return "" if is_alike else f"{path}: {_words(expected)} expected, {_words(given)} given"
    if ours.keys() != theirs.keys():
        missing = [key for key in ours if key not in theirs]
        unknown = [key for key in theirs if key not in ours]
        parts = [f"without {_names(missing)}"] * bool(missing)
        parts += [f"with {_names(unknown)}"] * bool(unknown)
        return f"{path}: {' and '.join(parts)}, unlike the others"
    for key in ours:
        found = difference(ours[key], theirs[key], path + _step(expected, key))
        if found:
            return found
    return ""


def _contents(value: object) -> dict[Any, Any] | None:
    """What a structure holds, by index, field or key; None for a leaf. Not to be changed."""
    kind: Any = type(value)
    if isinstance(value, dict):
        return value
    if isinstance(value, tuple):
        names = range(len(value)) if kind is tuple else getattr(kind, "_fields", None)
        return None if names is None else dict(zip(names, value, strict=True))
    is_dataclass = hasattr(kind, "__dataclass_fields__")
    fields = dataclasses.fields(kind) if is_dataclass else getattr(kind, "__attrs_attrs__", None)
    return None if fields is None else {each.name: getattr(value, each.name) for each in fields}


def _columns(values: Sequence[Any]) -> dict[Any, Sequence[Any]] | None:
    """What structures of one type hold: by index, field or key that of all. None if they differ in these."""
    first = values[0]
    held = _contents(first)
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


def _rebuild(like: Any, held: dict[Any, Any]) -> Any:
    """The same structure as `like`, holding something else: `_contents(_rebuild(x, held)) == held`.

    No constructor and no `__post_init__` runs: they may not take batches for what they hold.
    """
    kind = type(like)
    if kind is tuple:
        return tuple(held.values())
    if isinstance(like, tuple):
        return kind._make(held.values())
    if kind is dict:
        return held
    rebuilt = copy.copy(like)
    if isinstance(like, dict):
        rebuilt.update(held)
        return rebuilt
    for name, value in held.items():
        object.__setattr__(rebuilt, name, value)  # it may be frozen
    return rebuilt


def _step(value: object, key: object) -> str:
    """How one writes the way from a structure to what it holds: `[0]`, `.reward`, `['obs']`."""
    return f"[{key!r}]" if isinstance(value, dict) or type(value) is tuple else f".{key}"


def _type_name(kind: type) -> tuple[str, str]:
    """Says which type it is: one that travelled by value is another object for each process it came from."""
    return kind.__module__, kind.__qualname__


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
    if _contents(value) is None and (library := _library_of(value)) is not None:
        kind = "an array" if library == "numpy" else f"a {library} array"
        place = f" on {value.device}" if library == "torch" else ""
        return f"{kind} of {value.dtype} with shape {tuple(value.shape)}{place}"
    if value is None or isinstance(value, dict):
        return "None" if value is None else f"a dict with {_names(value)}"
    if isinstance(value, list) or type(value) is tuple:
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, int) and _is_huge(value):
        return _HUGE
    module, name = _type_name(type(value))
    return f"a value of type {name if module == 'builtins' else f'{module}.{name}'}"


def _is_huge(value: int) -> bool:
    return not -(2**63) <= value < 2**63


def _names(keys: Iterable[Any]) -> str:
    return reprlib.repr(list(keys)).strip("[]") or "no keys"
