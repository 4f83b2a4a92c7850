"""Stacking: many values of one kind become one value, which can be taken apart again.

    stack([(obs1, "a"), (obs2, "b")])          ──▶ (array of [obs1, obs2], ["a", "b"])
    unstack((array of [q1, q2], None), 2)      ──▶ [(q1, None), (q2, None)]

    a leaf                                             stacked
    -------------------------------------------------  ------------------------------------------
    numpy array or scalar; number; bool                a numpy array with a new first axis
    torch tensor, jax array                            its own kind, with a new first axis; jax and numpy
                                                       arrays together become a jax array
    anything else: str, bytes, list, set, objects      a list, one item per value

Containers and leaves are those of `courier/trees.py`, except that a list is a leaf here, because its length
is data: the tokens of a sentence, the moves of a game. Use a tuple if you mean structure. A masked array is
treated like any other object.

When a result is taken apart, arrays and lists are split along their first axis. Where the result has None,
each request gets None. No array library is imported before a value needs it.
"""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from launchpad.courier import trees

# Ints and floats are different kinds. If they were mixed, an int beyond 2**53 would become another number as
# a float, and a method would get floats or ints depending on what other callers sent.
_INT = "an int"
_FLOAT = "a float"
_COMPLEX = "a complex"
_BOOL = "a bool"
_ANY = "any object"
_SCALARS = (_INT, _FLOAT, _COMPLEX, _BOOL)
_PLAIN: dict[type, Hashable] = {float: _FLOAT, complex: _COMPLEX, bool: _BOOL}
_PLAIN |= {kind: kind.__name__ for kind in (str, bytes, bytearray, list, set, frozenset)}
_HUGE = "an int that 64 bits cannot hold"
# The numpy types of Python's numbers.
_NUMBERS = {("i", 8): _INT, ("f", 8): _FLOAT, ("c", 16): _COMPLEX}


def describe(value: Any) -> Hashable:
    """Return a key that is equal for values that can be stacked: same structure, shapes and dtypes."""
    kind = type(value)
    if kind in _PLAIN:
        return _PLAIN[kind]
    contents = _contents(value)
    if contents is not None:
        keys, values = contents
        return _type_name(kind), keys, tuple([describe(item) for item in values])
    library = _library_of(value)
    if library == "numpy":
        dtype = value.dtype
        shape = value.shape
        if not shape and dtype.kind == "b":
            return _BOOL
        if not shape and (dtype.kind, dtype.itemsize) in _NUMBERS:
            return _NUMBERS[dtype.kind, dtype.itemsize]
        return dtype.kind if dtype.kind in "SU" else dtype, shape  # strings may differ in length
    if library == "jax":
        return value.dtype, value.shape  # equal to numpy's: jax stacks both kinds together
    if library is not None:
        return _words(value)
    if isinstance(value, int):
        return _HUGE if _is_huge(value) else _INT
    if isinstance(value, float):
        return _FLOAT
    return _COMPLEX if isinstance(value, complex) else _ANY


def are_alike(values: Sequence[Any]) -> bool:
    """Return True if all values have the same description.

    Usually they do. Then this function finds out without making the descriptions.
    """
    kind = type(values[0])
    if all(type(value) is kind for value in values):
        if kind in _PLAIN:
            return True
        if kind is _type("numpy", "ndarray") and len({(v.dtype, v.shape) for v in values}) == 1:
            return True
        columns = _columns(values)
        if columns is not None:
            return all(are_alike(column) for column in columns)
    return len({describe(value) for value in values}) == 1


def stack(values: Sequence[Any]) -> Any:
    """Return one value like each of `values`, with stacked leaves. All must have the same description."""
    columns = _columns(values)
    if columns is not None:
        return trees.refilled(values[0], [stack(column) for column in columns])
    library = _library_of(values[0])
    if library == "numpy" and "jax" in sys.modules and "jax" in map(_library_of, values):
        library = "jax"
    if library == "numpy" and values[0].dtype.kind in "OV":
        return _numpy().stack(values)
    if library == "numpy" or describe(values[0]) in _SCALARS:
        return _numpy().array(values)  # this does what np.stack does, in a fraction of the time
    if library == "torch":
        return sys.modules["torch"].stack(list(values))
    if library == "jax":
        return sys.modules["jax"].numpy.stack(values)
    return list(values)


def unstack(value: Any, n: int, path: str = "result") -> list[Any]:
    """Take a stacked value apart into `n` values. If it doesn't have `n` items, raise ValueError with `path`.

    Arrays are copied. When a result is sent, the method may already run for the next batch, and overwrite
    the array that it returned.
    """
    contents = _contents(value)
    if contents is not None:
        keys, values = contents
        columns = [
            unstack(item, n, path + trees.step(type(value), key))
            for key, item in zip(trees.names_of(keys), values, strict=True)
        ]
        rows = zip(*columns, strict=True) if columns else [()] * n
        return [trees.refilled(value, row) for row in rows]
    library = _library_of(value)
    if library is None and not isinstance(value, list):
        raise ValueError(
            f"{path} is {_words(value)}, which cannot be divided among {n} requests. Return a list or an"
            " array with one item per request; None, or a tuple, dict or dataclass of these, will do too."
        )
    shape = (len(value),) if library is None else value.shape
    if not shape or shape[0] != n:
        raise ValueError(f"{path} is {_words(value)}, where one item for each of {n} was expected")
    if library == "torch":
        return [row.clone() for row in value.unbind(0)]  # a view would be sent with all other rows
    if library == "jax":
        return list(_numpy().asarray(value))  # each slice of a jax array runs a program of its own
    if library == "numpy":
        return list(value.copy())
    is_array = _type("numpy", "ndarray")
    return [item.copy() if type(item) is is_array else item for item in value]


def difference(expected: object, actual: object, path: str) -> str:
    """Return a text that says where the two values differ, or "" if they can be stacked."""
    ours = _contents(expected)
    theirs = _contents(actual)
    is_other = _type_name(type(expected)) != _type_name(type(actual))
    are_tuples = isinstance(expected, tuple) and isinstance(actual, tuple)
    if (
        ours is None
        or theirs is None
        or is_other
        or (are_tuples and ours[0] != theirs[0])  # of different lengths
    ):
        is_alike = describe(expected) == describe(actual)
        return "" if is_alike else f"{path}: {_words(expected)} expected, {_words(actual)} given"
    keys, values = ours
    if keys != theirs[0]:
        missing = [key for key in keys if key not in theirs[0]]
        unknown = [key for key in theirs[0] if key not in keys]
        parts = []
        if missing:
            parts.append(f"without {_names(missing)}")
        if unknown:
            parts.append(f"with {_names(unknown)}")
        if not parts:
            parts.append("with keys of other types")
        return f"{path}: {' and '.join(parts)}, unlike the others"
    for key, expected_part, actual_part in zip(
        trees.names_of(keys), values, theirs[1], strict=True
    ):
        text = difference(expected_part, actual_part, path + trees.step(type(expected), key))
        if text:
            return text
    return ""


def _contents(value: object) -> tuple[Any, Any] | None:
    """Return the keys and values of a container, or None for a leaf, such as a list."""
    return None if isinstance(value, list) else trees.contents(value)


def _columns(values: Sequence[Any]) -> list[Any] | None:
    """Return the values of containers of one type as one list per key, or None if their keys differ."""
    first = values[0]
    contents = _contents(first)
    if contents is None:
        return None
    keys = contents[0]
    # These two types are the most common in batches, and need no sorting for each value.
    if isinstance(first, tuple):
        is_even = all(len(value) == len(first) for value in values)
        return list(zip(*values, strict=True)) if is_even else None
    if isinstance(first, dict):
        is_even = all(value.keys() == first.keys() for value in values)
        return [[value[key] for value in values] for key in keys] if is_even else None
    return [[getattr(value, key) for value in values] for key in trees.names_of(keys)]


def _type_name(kind: type) -> tuple[str, str]:
    """Return a name for the type.

    A type that is pickled by value is a different object for each process that it came from.
    """
    return kind.__module__, kind.__qualname__


def _library_of(value: object) -> str | None:
    """Return `numpy`, `torch` or `jax` for their arrays. Only a loaded library can have made the value."""
    kind = type(value)
    if kind is _type("numpy", "ndarray"):
        return "numpy"
    if kind.__module__ == "builtins":
        return None
    if kind is _type("numpy", "memmap") or issubclass(kind, _type("numpy", "generic")):
        return "numpy"  # other subclasses of ndarray don't work with np.stack
    if issubclass(kind, _type("torch", "Tensor")):
        return "torch"
    return "jax" if isinstance(value, _type("jax", "Array")) else None


def _type(module: str, name: str) -> Any:
    """Return a type if its module is loaded, else `()`, which has no instances."""
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
    library = _library_of(value)
    if library is not None:
        kind = "an array" if library == "numpy" else f"a {library} array"
        place = f" on {value.device}" if library == "torch" else ""
        return f"{kind} of {value.dtype} with shape {tuple(value.shape)}{place}"
    if value is None:
        return "None"
    if isinstance(value, dict):
        return f"a dict with {_names(value)}"
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
