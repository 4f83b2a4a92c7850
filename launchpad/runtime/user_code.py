"""The user's functions and classes: checks for mistakes before they run, and the way coroutines run.

    lp.PyNode(fn)        fn     is called; if it returns a coroutine, that runs to its end on an event loop
    lp.PyClassNode(C)    C().run() likewise; C must have it
    lp.CourierNode(C)    C().run() likewise, on the loop of its async methods, if C has a `run`

Generators are refused: when a call returns one, none of its code has run.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import types
import typing
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

from launchpad.courier.explained import did_you_mean
from launchpad.courier.server.event_loop import EventLoop
from launchpad.errors import DefinitionError, Stopped
from launchpad.runtime import context

Function = Callable[..., Any]

_OURS = str(Path(__file__).parents[1])
_LIBRARY = re.compile(r"/lib(64)?/python3\.\d+/(?!site-packages|dist-packages)|^<")


def check_arguments(
    node: str,
    function: Function,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    *,
    may_lack_some: bool = False,
) -> None:
    """Refuse arguments that the function or class does not take.

    Decorators are not looked through, because they may add arguments, as configuration libraries do. Objects
    with a `__signature__` of their own, such as pydantic's models, are not checked, because they take other
    names, too.
    """
    kinds = function.__mro__ if isinstance(function, type) else (function, type(function))
    if any("__signature__" in getattr(cls, "__dict__", {}) for cls in kinds):
        return
    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # some built-in functions have no signature
        return
    try:
        (signature.bind_partial if may_lack_some else signature.bind)(*args, **kwargs)
    except TypeError as error:
        unknown = [name for name in kwargs if name not in signature.parameters]
        is_unknown = bool(unknown) and "unexpected" in str(error)
        hint = did_you_mean(unknown[0], signature.parameters) if is_unknown else ""
        raise DefinitionError(
            f"{node} cannot be called so: {error}.{hint} It is {name_of(function)}{_shown(signature)}."
        ) from None


def check_function(node: str, function: Function) -> None:
    """Refuse a generator function: a call of it returns at once, and its code never runs."""
    kind = _generator_kind(function)
    if kind:
        raise DefinitionError(
            f"{node}: {name_of(function)} is {kind}: a call returns at once, and nothing in it runs. Give"
            " a function that goes through it, or a method that others call as a stream (lp.CourierNode)."
        )


def check_constructor(node: str, constructor: Function, *, may_be_generator: bool = False) -> None:
    """Refuse a constructor that returns no object to run or serve."""
    code = _code(constructor)
    kind = "" if may_be_generator else _generator_kind(constructor)
    if inspect.iscoroutinefunction(code):
        kind = "an async function"
    if kind:
        raise DefinitionError(
            f"{node}: {name_of(constructor)} is {kind}, and builds no object. Give a class, or a function"
            " that returns an object."
        )


def check_run(node: str, constructor: Function, *, is_needed: bool) -> None:
    """Refuse a class whose `run` is a generator and, if a `run` `is_needed`, a class without one."""
    kind = typing.get_origin(constructor) or constructor
    if not isinstance(kind, type):
        return
    run = inspect.getattr_static(kind, "run", None)
    kind_of_generator = _generator_kind(run)
    if kind_of_generator:
        raise DefinitionError(
            f"{node}: {kind.__qualname__}.run is {kind_of_generator}: a call returns at once, and nothing"
            " in it runs. Leave out the `yield`, or go through it in another method."
        )
    if run is not None or not is_needed or _may_get_run(kind):
        return
    methods = [name for name in dir(kind) if not name.startswith("_")]
    hint = did_you_mean("run", methods, cutoff=0.5)
    raise DefinitionError(
        f"{node}: {kind.__qualname__} has no run(), so its worker would do nothing, and never end.{hint}"
        " Give it one; a class whose methods others call is an lp.CourierNode; for one that works from"
        " its constructor on, call disable_run() of the node."
    )


def until_done(function: Function, loop: EventLoop) -> Callable[[], Any]:
    """Return a function that calls `function`, and returns its result when all of it has run.

    An awaitable result runs on the loop.
    """

    def run() -> Any:
        result = function()
        if inspect.isawaitable(result):
            coroutine = result if isinstance(result, Coroutine) else _awaiting(result)
            return _run_coroutine(coroutine, loop)
        if isinstance(result, types.GeneratorType | types.AsyncGeneratorType):
            raise TypeError(
                f"{result.__qualname__} is a generator, of which nothing has run: it was returned to a"
                " worker, which does not go through it"
            )
        return result

    return run


def call_exit_handlers(loop: EventLoop) -> None:
    """Call the functions that this worker's code gave to `lp.on_exit`; coroutines run on the loop."""
    context.current().exits.call(lambda handler: until_done(handler, loop)())


async def _awaiting(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _run_coroutine(coroutine: Coroutine[Any, Any, Any], loop: EventLoop) -> Any:
    """Run the coroutine on the loop, and return its result.

    An interruption of this worker cancels the coroutine, as asyncio does at Ctrl-C.
    """
    me = context.current()
    with contextlib.ExitStack() as until_it_has_ended:
        with me.stop.interruption.forbidden():
            promise = loop.spawn(coroutine)
            # If the wait below is interrupted, cancel the coroutine too.
            until_it_has_ended.callback(promise.cancel)
            until_it_has_ended.enter_context(me.stop.interruption.replaced_by(promise.cancel))
        promise.wait()
    try:
        return promise.result()
    except CancelledError:
        if not me.stop.event.is_set():
            raise
    raise Stopped


def _generator_kind(function: object) -> str:
    code = _code(function)
    if inspect.isgeneratorfunction(code):
        return "a generator"
    return "an async generator" if inspect.isasyncgenfunction(code) else ""


def _code(function: object) -> object:
    """Return the function that a call runs: for an object, its class's `__call__`."""
    while isinstance(function, types.MethodType | staticmethod | classmethod):
        function = function.__func__
    if inspect.isroutine(function) or isinstance(function, type | functools.partial):
        return function
    return vars(type(function)).get("__call__", function)


def _may_get_run(kind: type) -> bool:
    """Return True if objects of the class may have a `run` that the class itself does not define."""
    if hasattr(type(kind), "__getattr__") or type(kind).__call__ is not type.__call__:
        return True
    for base in kind.__mro__[:-1]:
        attributes = vars(base)
        if (
            "__getattr__" in attributes
            or "__getattribute__" in attributes
            or "run" in attributes.get("__slots__", ())
        ):
            return True
        fields = {
            **attributes.get("__annotations__", {}),
            **attributes.get("__dataclass_fields__", {}),
        }
        if "run" in fields or isinstance(attributes.get("__new__"), staticmethod):
            return True
        if any(_SETS_ATTRIBUTES & _names_in(value) for value in attributes.values()):
            return True
    return False


_SETS_ATTRIBUTES = {"run", "setattr", "__setattr__", "__dict__", "vars"}


def _names_in(function: object) -> set[str]:
    """Return the names of attributes and globals in a function's code, and in functions defined in it."""
    todo = [getattr(inspect.unwrap(function), "__code__", None)]  # type: ignore[arg-type]
    names = set[str]()
    while todo:
        code = todo.pop()
        if code is not None:
            names.update(code.co_names)
            todo += [
                constant for constant in code.co_consts if isinstance(constant, types.CodeType)
            ]
    return names


def name_of(function: Function) -> str:
    """Return the function's name as in the source."""
    return str(getattr(function, "__qualname__", None) or repr(function)).rpartition("<locals>.")[2]


def _shown(signature: inspect.Signature) -> str:
    """Return the signature as text, without the annotations, which are long."""
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    try:
        return str(signature.replace(parameters=parameters, return_annotation=signature.empty))
    except Exception:  # the repr of a default raises
        return f"({', '.join(signature.parameters)})"


def is_of_user(filename: str) -> bool:
    """Return True if a source file belongs neither to launchpad nor to Python's own library."""
    return not filename.startswith(_OURS) and not _LIBRARY.search(filename)
