"""Classes and functions that travel by value. Where they arrive, they are made once and then left unchanged.

cloudpickle sends a class of `__main__` as a recipe. The process that the class came from recognizes it, and
so does a process that has made it before. But cloudpickle then sets all attributes of that class again, among
them functions whose globals are copies. It doesn't recognize functions at all. This file has its own steps:

    make(recipe)                        the class that is known already, or an empty, unfinished one
    fill(…)                             gives an unfinished class its attributes; does nothing otherwise
    make_function, fill_function        do the same for functions
    make_dispatcher, fill_dispatcher    do the same for functions made by `functools.singledispatch`

In a message, a class is its id and its definition. A definition is made once, as bytes, and kept:

    load(id, definition)    the class that is known already, or one that is made from the definition

A new definition is made when an attribute of the class, or a global that its methods use, is another object
than before. A change inside such an object is not noticed.

Functions and their globals:

    one that `__main__` has under its name    is recognized at its origin, and where it was sent before
    any other: a lambda, a closure            is a new one each time, with the values that it uses now

In a worker, `__main__` is not the user's script but a module that is filled with what arrives (`FILLED`). A
class or function that has a name in the script's `__main__` gets the same name in the worker's, unless the
name is taken. So pickle and multiprocessing find it. A function that is sent by a `Pickler` with `into_main`
uses the globals of the worker's `__main__`. When it comes back to its own process, it uses the script's.

Streams name the functions of this file, so `pickle.loads` alone can read them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import operator
import pickle
import sys
import types
import uuid
import weakref
from collections import ChainMap
from collections.abc import Callable, Iterator
from typing import Any, cast

import cloudpickle
from cloudpickle import cloudpickle as _private

from launchpad.courier import fork
from launchpad.courier.codec import (
    library_objects,
    loguru_logger,
    module_generators,
    pydantic_models,
    tensors,
)
from launchpad.courier.interruptions import RLock

FILLED = "__filled_by_launchpad__"
"""A name that a module `__main__` has if it is filled with what arrives."""

_SPAWNED_MAIN = "__mp_main__"
"""The name under which a process that multiprocessing spawned imports the script. No other process has it."""

_KEPT = "__courier_definition__"
_LARGE = 1 << 20
_not_kept: weakref.WeakSet[type] = weakref.WeakSet()

_CachedFunction: Any = type(functools.lru_cache(abs))  # functions with an `lru_cache`
_dispatcher: Any = functools.singledispatch(abs)
_DISPATCHER_CODE = _dispatcher.__code__  # the code of every `singledispatch` function

_unfinished: weakref.WeakSet[type | types.FunctionType] = weakref.WeakSet()
_functions: weakref.WeakValueDictionary[str, types.FunctionType] = weakref.WeakValueDictionary()
_ids: weakref.WeakKeyDictionary[types.FunctionType, str] = weakref.WeakKeyDictionary()
_here = uuid.uuid4().hex  # a forked child has the same, because it has the script's globals, too
# Held to make a class or a function, so that threads that read the same one at the same time get the same
# object. Reentrant, because a metaclass may unpickle while it makes a class.
_lock = fork.free_in_child(RLock())


def _reduce_code(code: types.CodeType) -> tuple[Any, ...]:
    """Reduce code with its file's name, which tracebacks show. cloudpickle omits the name since 3.1.3."""
    kind, arguments = _private._code_reduce(code)
    return kind, (*arguments[:10], "".join(code.co_filename), *arguments[11:])


_REDUCERS = ChainMap(
    {types.CodeType: _reduce_code, **library_objects.REDUCERS}, cloudpickle.Pickler.dispatch_table
)


class Pickler(cloudpickle.Pickler):  # type: ignore[misc,unused-ignore]
    """A cloudpickle Pickler that sends classes and functions as described above."""

    into_main = False
    """True if functions use the globals of the `__main__` where they arrive."""
    keeps_definitions = False
    """True if classes are sent as definitions that are cached."""

    def __init__(
        self,
        file: Any,
        protocol: int,
        buffer_callback: Callable[[Any], bool] | None = None,
        reducers: dict[type, tensors.Reducer] | None = None,
    ) -> None:
        spawned = sys.modules.get(_SPAWNED_MAIN)
        if spawned is not None:
            cloudpickle.register_pickle_by_value(spawned)
        reducers = tensors.native_reducers() if reducers is None else reducers
        # This must come first: `super().__init__` is the only place where a Pickler looks at the table.
        self.dispatch_table = ChainMap(reducers, _REDUCERS)
        super().__init__(file, protocol=protocol, buffer_callback=buffer_callback)

    def reducer_override(self, obj: Any) -> Any:
        """Reduce an object as cloudpickle does, but wrap cloudpickle's functions in those of this file."""
        tensors.check(obj)
        if obj is dataclasses.MISSING:
            return "MISSING"  # by name: `dataclasses` compares values with this very object
        if module_generators.is_kept(obj):
            return module_generators.by_name(obj)
        keeps = self.keeps_definitions and isinstance(obj, type)
        if keeps:
            definition = vars(obj).get(_KEPT)
            if definition is not None and definition.is_of(obj):
                return load, definition.arguments
        if type(obj) is _CachedFunction:
            module = obj.__module__
            if module == "__main__" or not is_named_in(module, obj):
                return _with_cache, (obj.__wrapped__, obj.cache_parameters())
        if isinstance(obj, types.FunctionType) and _is_dispatcher(obj) and _is_by_value(obj):
            return _reduce_dispatcher(obj)
        of_pydantic = pydantic_models.reduced(obj)
        if of_pydantic is not NotImplemented:
            return of_pydantic
        of_loguru = loguru_logger.reduced(obj)
        if of_loguru is not NotImplemented:
            return of_loguru
        reduced = super().reducer_override(obj)
        if not isinstance(reduced, tuple) or len(reduced) != 6:
            return reduced
        recipe, arguments, state, _, _, setter = reduced
        name = getattr(setter, "__name__", "")
        if name == "_class_setstate" and _known_classes():
            if keeps:
                definition = _keep(obj)
                if definition is not None:
                    return load, definition.arguments
            state[0].pop(_KEPT, None)
            pydantic_models.leave_built(state[0])
            if recipe.__name__ == "_make_skeleton_class" and vars(obj).get("__slots__"):
                # cloudpickle sets `__slots__` after the class is made, when it has no effect any more.
                kind, its_name, bases, namespace, *others = arguments
                namespace = {**namespace, "__slots__": obj.__slots__}
                arguments = kind, its_name, bases, namespace, *others
            state = setter, state, is_named_in("__main__", obj)
            return make, (recipe, *arguments), state, None, None, fill
        if name == "_function_setstate" and obj.__module__ == "__main__":
            name = _id_of(obj)
            origin = _here if self.into_main else ""
            state = setter, state, bool(name)
            arguments = origin, name, recipe, *arguments
            return make_function, arguments, state, None, None, fill_function
        return reduced


def dumps(
    value: object,
    protocol: int,
    buffer_callback: Callable[[Any], bool] | None = None,
    into_main: bool = False,
    keeps_definitions: bool = True,
) -> bytes:
    """Pickle a value, as `cloudpickle.dumps` does."""
    with io.BytesIO() as file:
        pickler = Pickler(file, protocol, buffer_callback, tensors.reducers())
        pickler.into_main = into_main
        pickler.keeps_definitions = keeps_definitions and not into_main
        pickler.dump(value)
        return file.getvalue()


def is_named_in(module: str, obj: Any) -> bool:
    """Return True if the module holds this very class or function under its qualified name."""
    try:
        return operator.attrgetter(obj.__qualname__)(sys.modules.get(module)) is obj
    except AttributeError:
        return False


def _with_cache(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    """Wrap the function in a new, empty `lru_cache`."""
    return functools.lru_cache(**parameters)(function)


def _keep(kind: type) -> _Definition | None:
    """Store the definition of a class in the class. Return None if it is too large or can't be stored."""
    if kind in _not_kept:
        return None
    body = dumps(kind, 5, keeps_definitions=False)
    definition = _Definition(kind, body)
    try:
        # A large definition isn't kept, because each class would keep its own copy of the objects that
        # several use.
        if len(body) < _LARGE:
            type.__setattr__(kind, _KEPT, definition)
            return definition
    except TypeError:  # the metaclass is written in C
        pass
    _not_kept.add(kind)
    return None


class _Definition:
    """A class as bytes, kept in an attribute of the class, so that both are freed together."""

    def __init__(self, kind: type, definition: bytes) -> None:
        # The reference is weak, because `vars` of the class contain this object, and another class may be
        # made from them.
        self._kind = weakref.ref(kind)
        self._parts = list(_parts_of(kind))
        self.arguments = _private._get_or_create_tracker_id(kind), definition

    def is_of(self, kind: type) -> bool:
        """Return True if this is the definition of `kind`, and `kind` has not changed since."""
        if self._kind() is not kind:
            return False
        parts = list(_parts_of(kind))
        return len(parts) == len(self._parts) and all(map(operator.is_, parts, self._parts))

    def __reduce__(self) -> Any:
        """Reduce to None for other picklers, and for copies of the class."""
        return type(None), ()


def _parts_of(kind: type) -> Iterator[object]:
    """Yield the parts of a class that travels by value: its attributes, and what its methods use.

    Looks into bases, functions and classes only if they travel by value, too.
    """
    todo: list[Any] = [kind]
    visited = set()
    while todo:
        part = todo.pop()
        if id(part) in visited:
            continue
        visited.add(id(part))
        if isinstance(part, type):
            values = [value for name, value in list(vars(part).items()) if name != _KEPT]
            values += part.__bases__
        elif isinstance(part, types.FunctionType):
            names = _private._extract_code_globals(part.__code__)
            values = [part.__code__, *map(part.__globals__.get, names)]
            for cell in part.__closure__ or ():
                with contextlib.suppress(ValueError):  # the cell is empty
                    values.append(cell.cell_contents)
        else:
            values = [getattr(part, name, None) for name in _HOLDS_FUNCTIONS]
        yield from values
        todo += [value for value in values if _is_by_value(value)]


_HOLDS_FUNCTIONS = ("__func__", "fget", "fset", "fdel", "func")
_WRAPPERS = (
    staticmethod,
    classmethod,
    property,
    functools.cached_property,
    functools.partialmethod,
)


def _is_by_value(part: object) -> bool:
    if not isinstance(part, type | types.FunctionType):
        return isinstance(part, _WRAPPERS)
    if part.__module__ == "__main__" or "<locals>" in part.__qualname__:
        return True
    # The modules whose classes and functions must travel by value.
    registered = getattr(_private, "_PICKLE_BY_VALUE_MODULES", ())
    return bool(registered) and not _private._should_pickle_by_reference(part)


def load(tracker_id: str, definition: Any) -> type:
    """Return the class that is known by this id, or make it from its definition."""
    kind: type | None = _known_classes().get(tracker_id)
    if kind is None or kind in _unfinished:
        kind = pickle.loads(definition)
    return kind


def make(recipe: Callable[..., type], *arguments: Any) -> type:
    """Return the class of this recipe: the one that is here already, or a new, empty one."""
    classes = _known_classes()
    with _lock:
        is_new = not any(
            isinstance(argument, str) and argument in classes for argument in arguments
        )
        kind = recipe(*arguments)
        if is_new:
            _unfinished.add(kind)
    return kind


def fill(kind: type, contents: tuple[Callable[[type, Any], Any], Any, bool]) -> None:
    """Give a class its attributes, if it is not finished.

    Two threads that read the same class at the same time both do this, because neither of them may use the
    class before it is complete.
    """
    setter, state, is_named = contents
    if kind in _unfinished:
        setter(kind, state)
        pydantic_models.build(kind)
        if is_named and "." not in kind.__qualname__:
            _put_into_main(kind.__name__, kind)
        _unfinished.discard(kind)


def is_unfinished(value: object) -> bool:
    """Return True for a class or function that has been made, and has no state yet."""
    return isinstance(value, type | types.FunctionType) and value in _unfinished


def make_function(
    origin: str,
    known_as: str,
    recipe: Callable[..., types.FunctionType],
    code: types.CodeType,
    its_globals: dict[str, Any],
    *arguments: Any,
) -> types.FunctionType:
    """Return the function that is known by this id, or a new one that has no state yet."""
    main = vars(sys.modules["__main__"])
    with _lock:
        function = _functions.get(known_as)
        if function is not None:
            return function
        shares = bool(origin) and (FILLED in main or origin == _here)
        if shares and its_globals.get("__name__") == "__main__":
            its_globals = main
        new_function = recipe(code, its_globals, *arguments)
        if shares and known_as:
            _functions[known_as] = new_function
            _ids[new_function] = known_as
        _unfinished.add(new_function)
    return new_function


def fill_function(
    function: types.FunctionType,
    contents: tuple[Callable[[types.FunctionType, Any], Any], Any, bool],
) -> None:
    """Give a function its state, if it is not finished. Globals that exist already stay as they are."""
    setter, (attributes, slots), is_named = contents
    if function not in _unfinished:
        return
    main = vars(sys.modules["__main__"])
    if function.__globals__ is main:
        missing = {n: value for n, value in slots["__globals__"].items() if n not in main}
        slots = {**slots, "__globals__": missing}
    setter(function, (attributes, slots))
    if is_named:
        _put_into_main(function.__name__, function)
    _unfinished.discard(function)


def _is_dispatcher(function: Any) -> bool:
    """Return True for a function made by `functools.singledispatch`: its closure cannot be pickled."""
    return function.__code__ is _DISPATCHER_CODE and hasattr(function, "registry")


def _reduce_dispatcher(dispatcher: Any) -> tuple[Any, ...]:
    known_as = _id_of(dispatcher) if dispatcher.__module__ == "__main__" else ""
    is_named = is_named_in("__main__", dispatcher)
    state = dict(dispatcher.registry), dispatcher.__wrapped__, is_named
    return make_dispatcher, (known_as, dispatcher.__name__), state, None, None, fill_dispatcher


def make_dispatcher(known_as: str, name: str) -> types.FunctionType:
    """Return the dispatcher that is known by this id, or a new one that has no functions yet."""

    def not_filled(*args: Any) -> None:
        raise NotImplementedError

    with _lock:
        dispatcher = _functions.get(known_as)
        if dispatcher is not None:
            return dispatcher
        not_filled.__name__ = name
        new_dispatcher: Any = functools.singledispatch(not_filled)
        if known_as:
            _functions[known_as] = new_dispatcher
            _ids[new_dispatcher] = known_as
        _unfinished.add(new_dispatcher)
    return cast(types.FunctionType, new_dispatcher)


def fill_dispatcher(dispatcher: Any, contents: tuple[dict[type, Any], Any, bool]) -> None:
    """Give a dispatcher the functions that it chooses from, if it is not finished."""
    registry, wrapped, is_named = contents
    if dispatcher not in _unfinished:
        return
    for kind, function in registry.items():
        dispatcher.register(kind, function)
    functools.update_wrapper(dispatcher, wrapped)
    if is_named:
        _put_into_main(dispatcher.__name__, dispatcher)
    _unfinished.discard(dispatcher)


def _put_into_main(name: str, value: type | types.FunctionType) -> None:
    """Store a value under `name` in `__main__`, if `__main__` is filled and has no such name yet."""
    main = vars(sys.modules["__main__"])
    if FILLED in main:
        main.setdefault(name, value)


def _id_of(function: types.FunctionType) -> str:
    """Return the id by which a named function of `__main__` is recognized; empty for any other."""
    with _lock:
        if function not in _ids and is_named_in("__main__", function):
            _ids[function] = uuid.uuid4().hex
            _functions[_ids[function]] = function
        return _ids.get(function, "")


def _known_classes() -> Any:
    """Return cloudpickle's mapping of ids to classes; empty if a later version renames it."""
    return getattr(_private, "_DYNAMIC_CLASS_TRACKER_BY_ID", {})
