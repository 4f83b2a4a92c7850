"""Reducers for objects of Python's own library that scripts make beside their code, and that pickle refuses.

    functools.cached_property           arrives with a new lock; it has a lock in Python 3.11 only
    threading.local                     arrives empty, as a new thread finds it
    contextvars.ContextVar              arrives with its default, as a new thread finds it
    weak dictionaries                   arrive with entries that something else keeps alive there: mostly none
    NewType, ParamSpec, TypeVarTuple    arrive whole if they are of `__main__`; pickle sends only the name
    `type X = …`                        arrives whole, in the same way

There is no reducer for locks: if each worker had a lock of its own, no worker would exclude another.
"""

from __future__ import annotations

import contextvars
import functools
import threading
import typing
import weakref
from collections.abc import Callable
from typing import Any

Reduced = str | tuple[Any, ...]


def _reduce_cached_property(obj: functools.cached_property[Any]) -> Reduced:
    state = {name: value for name, value in vars(obj).items() if name != "lock"}
    # The state is set after the object is made, because its function may refer to the class that it is in.
    return new_cached_property, ("lock" in vars(obj),), state


def new_cached_property(has_lock: bool) -> functools.cached_property[Any]:
    """Make a cached property that has no function yet."""
    new_property = object.__new__(functools.cached_property)
    if has_lock:
        new_property.lock = threading.RLock()  # type: ignore[attr-defined]
    return new_property


def _reduce_local(obj: threading.local) -> Reduced:
    return threading.local, ()


def _reduce_context_variable(obj: contextvars.ContextVar[Any]) -> Reduced:
    try:
        default = contextvars.Context().run(obj.get)
    except LookupError:
        return contextvars.ContextVar, (obj.name,)
    return new_context_variable, (obj.name, default)


def new_context_variable(name: str, default: object) -> contextvars.ContextVar[Any]:
    """Make a context variable with a default."""
    return contextvars.ContextVar(name, default=default)


def _reduce_weak_dictionary(obj: Any) -> Reduced:
    return type(obj), (), None, None, iter(list(obj.items()))


def _reduce_new_type(obj: Any) -> Reduced:
    if not _is_of_script(obj):
        return typing.cast(str, obj.__reduce__())
    return typing.NewType, (obj.__qualname__, obj.__supertype__), {"__module__": obj.__module__}


def _reduce_parameters(obj: Any) -> Reduced:
    """Reduce a ParamSpec or a TypeVarTuple."""
    if not _is_of_script(obj):
        return typing.cast(str, obj.__reduce__())
    return new_parameters, (type(obj), obj.__name__, obj.__module__)


def new_parameters(kind: Any, name: str, module: str) -> Any:
    """Make a ParamSpec or a TypeVarTuple whose `__module__` is this module."""
    parameters = kind(name)
    parameters.__module__ = module
    return parameters


def _reduce_alias(obj: Any) -> Reduced:
    if not _is_of_script(obj):
        return typing.cast(str, obj.__reduce__())
    return new_alias, (obj.__name__, obj.__value__, obj.__type_params__)


def new_alias(name: str, value: object, parameters: tuple[Any, ...]) -> Any:
    """Make the object that `type X = …` makes."""
    kind: Any = _AliasType
    return kind(name, value, type_params=parameters)


def _is_of_script(obj: Any) -> bool:
    return bool(obj.__module__ == "__main__")


_AliasType: Any = getattr(typing, "TypeAliasType", None)  # since Python 3.12

REDUCERS: dict[type, Callable[[Any], Reduced]] = {
    functools.cached_property: _reduce_cached_property,
    threading.local: _reduce_local,
    contextvars.ContextVar: _reduce_context_variable,
    weakref.WeakKeyDictionary: _reduce_weak_dictionary,
    weakref.WeakValueDictionary: _reduce_weak_dictionary,
    typing.NewType: _reduce_new_type,
    typing.ParamSpec: _reduce_parameters,
    typing.TypeVarTuple: _reduce_parameters,
}
if _AliasType is not None:
    REDUCERS[_AliasType] = _reduce_alias
