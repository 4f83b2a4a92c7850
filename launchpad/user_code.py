"""The user's functions and classes: what can be seen to be wrong before they run, and how coroutines run.

    lp.PyNode(fn)        fn     is called; what is a coroutine then runs to its end on an event loop
    lp.PyClassNode(C)    C().run() likewise; C has to have it
    lp.CourierNode(C)    C().run() likewise, on the loop of its async methods, if it has one

A generator has not run when it is returned, so none is taken.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any

from launchpad import context
from launchpad.courier.server.event_loop import EventLoop
from launchpad.errors import DefinitionError, Stopped

Function = Callable[..., Any]


def check_arguments(
    node: str, function: Function, args: Sequence[object], kwargs: Mapping[str, object]
) -> None:
    """Refuses arguments that the function or class does not take.

    Decorators are not looked through: they may add arguments, as configuration libraries do.
    """
    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except Exception:  # a built-in one has none, and `__signature__` of an object may be anything
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        import difflib

        unknown = [name for name in kwargs if name not in signature.parameters]
        near = difflib.get_close_matches(unknown[0], signature.parameters) if unknown else []
        hint = f" Did you mean {near[0]}?" if near and "unexpected" in str(error) else ""
        raise DefinitionError(
            f"{node} cannot be called so: {error}.{hint} It is {name_of(function)}{_shown(signature)}."
        ) from None


def check_function(node: str, function: Function) -> None:
    """Refuses a function that returns at once and never runs."""
    if kind := _generator_kind(function):
        raise DefinitionError(
            f"{node}: {name_of(function)} is {kind}: a call returns at once, and nothing in it runs. Give"
            " a function that goes through it, or a method that others call as a stream (lp.CourierNode)."
        )


def check_constructor(node: str, constructor: Function, *, may_be_generator: bool = False) -> None:
    """Refuses what returns no object to be run or served."""
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
    """Refuses a class whose `run` never runs; where one `is_needed`, also a class that has none."""
    kind = typing.get_origin(constructor) or constructor
    if not isinstance(kind, type):
        return
    run = inspect.getattr_static(kind, "run", None)
    if kind_of_generator := _generator_kind(run):
        raise DefinitionError(
            f"{node}: {kind.__qualname__}.run is {kind_of_generator}: a call returns at once, and nothing"
            " in it runs. Leave out the `yield`, or go through it in another method."
        )
    if run is not None or not is_needed or _may_get_run(kind):
        return
    import difflib

    methods = [
        name
        for name in dir(kind)
        if not name.startswith("_") and callable(getattr(kind, name, None))
    ]
    near = difflib.get_close_matches("run", methods, cutoff=0.5)
    hint = f"Did you mean {near[0]}? " if near else ""
    raise DefinitionError(
        f"{node}: {kind.__qualname__} has no run(), so its worker would do nothing, and never end. {hint}"
        "Give it one; a class whose methods others call is an lp.CourierNode; for one that works from"
        " its constructor on, call disable_run() of the node."
    )


def until_done(function: Function, loop: EventLoop | None = None) -> Callable[[], None]:
    """What calls the function, and returns when all of it has run.

    Args:
        function: It takes no arguments.
        loop: Where a coroutine runs; None: on one of its own.
    """

    def run() -> None:
        result = function()
        if isinstance(result, types.CoroutineType):
            _run_coroutine(result, loop)
        elif isinstance(result, types.GeneratorType | types.AsyncGeneratorType):
            raise TypeError(
                f"{result.__qualname__} is a generator, of which nothing has run: it was returned to a"
                " worker, which does not go through it"
            )

    return run


def _run_coroutine(coroutine: Coroutine[Any, Any, Any], loop: EventLoop | None) -> None:
    """Waits for it. When this worker is to be interrupted, it is cancelled, as asyncio does at Ctrl-C."""
    me = context.current()
    runs_on = EventLoop(me.name) if loop is None else loop
    promise = runs_on.spawn(coroutine)
    try:
        with me.interruption.replaced_by(promise.cancel):
            promise.wait()
    finally:
        promise.cancel()  # where it is the waiting that was interrupted
        if loop is None:
            runs_on.close()
    try:
        promise.result()
        return
    except CancelledError:
        if not me.stop_event.is_set():
            raise
    raise Stopped


def _generator_kind(function: object) -> str:
    code = _code(function)
    if inspect.isgeneratorfunction(code):
        return "a generator"
    return "an async generator" if inspect.isasyncgenfunction(code) else ""


def _code(function: object) -> object:
    """What a call runs: for an object, its class's `__call__`."""
    while isinstance(function, types.MethodType | staticmethod | classmethod):
        function = function.__func__
    if inspect.isroutine(function) or isinstance(function, type | functools.partial):
        return function
    return vars(type(function)).get("__call__", function)


def _may_get_run(kind: type) -> bool:
    """Whether its objects may have a `run` that the class does not show."""
    if hasattr(type(kind), "__getattr__") or type(kind).__call__ is not type.__call__:
        return True
    for each in kind.__mro__[:-1]:
        own = vars(each)
        if "__getattr__" in own or "__getattribute__" in own or "run" in own.get("__slots__", ()):
            return True
        fields = {**own.get("__annotations__", {}), **own.get("__dataclass_fields__", {})}
        if "run" in fields or isinstance(own.get("__new__"), staticmethod):
            return True
        init = getattr(own.get("__init__"), "__code__", None)
        if init is not None and not {"run", "setattr", "__dict__"}.isdisjoint(init.co_names):
            return True
    return False


def name_of(function: Function) -> str:
    """Its name as in the source."""
    return str(getattr(function, "__qualname__", None) or repr(function)).rpartition("<locals>.")[2]


def _shown(signature: inspect.Signature) -> str:
    """It without the annotations, which are long."""
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=signature.empty))
