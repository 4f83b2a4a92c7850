"""The rule that decides which methods of an object a server serves, and the decorators that change it.

By default a server serves `__call__` and all kinds of public methods of the object's class. It doesn't serve
`run`, properties, or anything that begins with an underscore. Decorators change this:

    @courier.serves(also=["predict"])       # an attribute of the instance, say a compiled function
    class Learner:
        @courier.idempotent                 # may run twice: courier may repeat a call of it
        def parameters(self): ...

        @courier.priority                   # overtakes calls that wait for a thread
        def heartbeat(self): ...
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, TypeVar

from launchpad.courier.light_dataclass import dataclass

F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K", bound=type)

_SERVES = "courier_serves"
IDEMPOTENT = "courier_idempotent"
PRIORITY = "courier_priority"
ONE_AT_A_TIME = "courier_one_at_a_time"
CLIENT_NAMES = frozenset({"address", "aio", "futures", "stats", "with_options"})
"""Names that a client uses itself: `client.stats` is never the server's method of that name."""


@dataclass(frozen=True)
class _Exposed:
    """The arguments of `serves`, stored on the class."""

    only: frozenset[str] | None
    also: frozenset[str]


def serves(*, only: Iterable[str] | None = None, also: Iterable[str] = ()) -> Callable[[K], K]:
    """Restrict or extend what instances of a class serve.

    Example:
        @lp.serves(only=["get", "put"])
        class Table:
            def get(self, key): ...
            def put(self, key, value): ...
            def check(self): ...                    # not served

    Args:
        only: serve these methods and no others.
        also: serve these too: `run`, or attributes of the instance that can be called.

    Raises:
        TypeError: a name begins with an underscore, so that no client could call it; or the class has no
            method with one of the names in `only`.
    """
    exposed = _Exposed(None if only is None else _names(only), _names(also))

    def decorate(kind: K) -> K:
        for name in exposed.only or ():
            if not hasattr(kind, name):
                raise TypeError(f"{kind.__name__} has no method {name!r} to serve")
        setattr(kind, _SERVES, exposed)
        return kind

    return decorate


def idempotent(method: F) -> F:
    """Declare that a method may run twice, with the same effect as once.

    If the connection ends while such a call is in flight, its outcome is unknown, and courier repeats the
    call. This does what `client.with_options(idempotent=True)` does, at once for all callers that got their
    client from a handle.

    Example:
        class Table:
            @lp.idempotent
            def put(self, key: str, value: float) -> None:
                self.rows[key] = value
    """
    setattr(method, IDEMPOTENT, True)
    return method


def priority(method: F) -> F:
    """Let calls of a method overtake other calls that wait for a thread of the server.

    Example:
        class Learner:
            @lp.priority
            def progress(self) -> int:              # doesn't wait for a hundred calls of step()
                return self.steps
    """
    setattr(method, PRIORITY, True)
    return method


def one_at_a_time(kind: K) -> K:
    """Run the calls of a class's methods one at a time, in the thread that built the object.

    Example:
        @lp.one_at_a_time
        class Table:
            def __init__(self, path: str):
                self.rows = sqlite3.connect(path)   # only the thread that made it may use it

    This does what `lp.CourierNode(Table, path, one_at_a_time=True)` does, for all nodes of the class.
    """
    setattr(kind, ONE_AT_A_TIME, True)
    return kind


def has_priority(kind: type, name: str) -> bool:
    """Return True if the class marks this method with `priority`.

    This looks at the attribute that the class stores. If that is a descriptor, it may have the mark even if
    the method that it returns has no mark.
    """
    return bool(getattr(_look_up(kind, name), PRIORITY, False))


def public_methods(obj: object, exclude: Collection[str] = ()) -> dict[str, Callable[..., Any]]:
    """Return the methods of `obj` that are served, by name.

    This function looks the methods up on the type, so that it evaluates no property and serves no attribute
    of the instance by accident. It leaves out `run`, which the node itself calls. Two kinds of objects have
    more methods:

        an object whose class defines `__dir__`     the functions and methods that `__dir__` lists
        an object that has a `batched_handler`      the handler, and properties that return a handler
    """
    kind = type(obj)
    exposed: _Exposed = getattr(kind, _SERVES, _Exposed(None, frozenset()))
    methods = {name: getattr(obj, name) for name in _served_names(kind)}
    methods |= _listed(obj) | _batched(obj)
    names = {name for name in methods if exposed.only is None or name in exposed.only}
    methods = {name: methods[name] for name in sorted(names - set(exclude))}
    for name in exposed.also:
        methods[name] = getattr(obj, name, None)
        if not callable(methods[name]):
            raise TypeError(
                f"{kind.__name__} is to serve {name!r} also, but has no such method or callable "
                "attribute once it is constructed"
            )
    return methods


def _listed(obj: object) -> dict[str, Callable[..., Any]]:
    """Return the functions and methods that the object's own `__dir__` lists and its class doesn't have.

    A wrapper around another object has such methods.
    """
    kind = type(obj)
    if _look_up(kind, "__dir__") is object.__dir__:
        return {}
    methods = {}
    for name in dir(obj):
        if not name.startswith("_") and name != "run" and _look_up(kind, name) is None:
            value = getattr(obj, name, None)
            if inspect.isroutine(value) or (callable(value) and hasattr(value, "__wrapped__")):
                methods[name] = value
    return methods


def _batched(obj: object) -> dict[str, Callable[..., Any]]:
    """Return the handlers that `batched_handler` made for this very object, by name."""
    handlers = {}
    for name, value in getattr(obj, "__dict__", {}).items():
        if _is_batched(value):
            handlers[name] = value
    if handlers:
        for name in dir(type(obj)):
            if not name.startswith("_") and isinstance(_look_up(type(obj), name), property):
                value = getattr(obj, name, None)
                if _is_batched(value):
                    handlers[name] = value
    return {name: handler for name, handler in handlers.items() if not name.startswith("_")}


def _is_batched(value: object) -> bool:
    return callable(value) and hasattr(type(value), "courier_promise")


def warn_of_shadowed_methods(
    kind: type, exclude: Collection[str] = (), stacklevel: int = 2
) -> None:
    """Warn of methods whose names a client uses itself: `client.stats()` never calls the server."""
    for name in sorted((_served_names(kind) & CLIENT_NAMES) - set(exclude)):
        warnings.warn(
            f"{kind.__name__}.{name} serves clients, but client.{name} is the client's own. They "
            f"reach it as client.futures.{name}(…).result(); better give it another name.",
            stacklevel=stacklevel + 1,
        )


def idempotent_methods(kind: type) -> tuple[str, ...]:
    """Return the names of the methods of a class that are `idempotent`."""
    return tuple(name for name in dir(kind) if getattr(_look_up(kind, name), IDEMPOTENT, False))


def served_methods(kind: type) -> dict[str, Any]:
    """Return the methods that all instances of a class serve, by name, as attributes of the class."""
    return {name: _look_up(kind, name) for name in sorted(_served_names(kind))}


def _served_names(kind: type) -> set[str]:
    exposed: _Exposed = getattr(kind, _SERVES, _Exposed(None, frozenset()))
    names = set()
    for name in dir(kind):
        is_public = name == "__call__" or (name != "run" and not name.startswith("_"))
        if is_public and _is_method(kind, _look_up(kind, name)):
            names.add(name)
    return names if exposed.only is None else names & exposed.only


def _is_method(kind: type, value: Any) -> bool:
    """Return True if this attribute of a class is a method of its instances. Evaluates no property."""
    if isinstance(value, staticmethod | classmethod):
        return True
    if callable(value):
        return not isinstance(value, type | partial)
    # The value may be a singledispatchmethod, a partialmethod or another descriptor. On the class, the
    # descriptor of a method returns a callable, and the descriptor of a property returns itself. Descriptors
    # with `__set__` are attributes, so they aren't tried.
    its_type = type(value)
    if not hasattr(its_type, "__get__") or hasattr(its_type, "__set__"):
        return False
    try:
        on_class = value.__get__(None, kind)
    except Exception:  # the descriptor works for instances only
        return False
    return callable(on_class) and not isinstance(on_class, type)


def _look_up(kind: type, name: str) -> Any:
    """Return an attribute as the class stores it, without evaluating a descriptor. None if it's missing."""
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)


def _names(names: Iterable[str]) -> frozenset[str]:
    if isinstance(names, str):
        raise TypeError(f"names to serve are a list of strings, not the string {names!r}")
    unique_names = frozenset(names)
    hidden_names = sorted(
        name for name in unique_names if name.startswith("_") and name != "__call__"
    )
    if hidden_names:
        raise TypeError(
            f"{', '.join(hidden_names)}: no client can call a name that begins with '_'"
        )
    return unique_names
