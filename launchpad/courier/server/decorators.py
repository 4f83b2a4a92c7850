"""Which methods of an object are served, and the decorators that change it.

By default: the public methods of its class, of whatever kind, and `__call__`, but not `run`, nothing that
begins with an underscore, and no property. Decorators change or extend that:

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
"""What a client has of its own."""


@dataclass(frozen=True)
class _Exposed:
    """The arguments of `serves`, kept on the class."""

    only: frozenset[str] | None
    also: frozenset[str]


def serves(*, only: Iterable[str] | None = None, also: Iterable[str] = ()) -> Callable[[K], K]:
    """Restricts or extends what instances of a class serve.

    Example:
        @lp.serves(only=["get", "put"])
        class Table:
            def get(self, key): ...
            def put(self, key, value): ...
            def check(self): ...                    # not served

    Args:
        only: these and no others.
        also: these too: `run`, or an attribute of the instance that can be called.

    Raises:
        TypeError: a name begins with an underscore, so that no client could call it.
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
    """Declares that a method may run twice, with the same effect as once.

    Courier then repeats a call of it whose outcome is unknown, because the connection ended while it
    was under way. The same as `client.with_options(idempotent=True)`, once for all callers that have
    the client from a handle.

    Example:
        class Table:
            @lp.idempotent
            def put(self, key: str, value: float) -> None:
                self.rows[key] = value
    """
    setattr(method, IDEMPOTENT, True)
    return method


def priority(method: F) -> F:
    """Makes calls of a method overtake those that wait for a thread of the server.

    Example:
        class Learner:
            @lp.priority
            def progress(self) -> int:              # does not wait until a hundred calls of step() are done
                return self.steps
    """
    setattr(method, PRIORITY, True)
    return method


def one_at_a_time(kind: K) -> K:
    """Has the calls of a class run one at a time, in the thread that has built the object.

    Example:
        @lp.one_at_a_time
        class Table:
            def __init__(self, path: str):
                self.rows = sqlite3.connect(path)   # which only the thread that has made it may use

    The same as `lp.CourierNode(Table, path, one_at_a_time=True)`, for all nodes of the class.
    """
    setattr(kind, ONE_AT_A_TIME, True)
    return kind


def has_priority(kind: type, name: str) -> bool:
    """True if a class declares so: its descriptor may have the mark, and what that gives may not."""
    return bool(getattr(_look_up(kind, name), PRIORITY, False))


def public_methods(obj: object, exclude: Collection[str] = ()) -> dict[str, Callable[..., Any]]:
    """The methods of `obj` that are served, by name.

    Looked up on the type, so that no property is evaluated and no attribute of the instance is
    served by accident. `run` is what a node does, not what it serves. Two kinds of objects say more:

        one whose class defines `__dir__`       what that lists, and is a function or method
        one that holds a `batched_handler`      that, by its attribute, and properties that return one
    """
    kind = type(obj)
    exposed: _Exposed = getattr(kind, _SERVES, _Exposed(None, frozenset()))
    found = {name: getattr(obj, name) for name in _served_names(kind)}
    found |= _listed(obj) | _batched(obj)
    may = {name for name in found if exposed.only is None or name in exposed.only}
    found = {name: found[name] for name in sorted(may - set(exclude))}
    for name in exposed.also:
        found[name] = getattr(obj, name, None)
        if not callable(found[name]):
            raise TypeError(
                f"{kind.__name__} is to serve {name!r} also, but has no such method or callable "
                "attribute once it is constructed"
            )
    return found


def _listed(obj: object) -> dict[str, Callable[..., Any]]:
    """The functions and methods that its own `__dir__` lists and its class does not have, as a wrapper's."""
    kind = type(obj)
    if _look_up(kind, "__dir__") is object.__dir__:
        return {}
    found = {}
    for name in dir(obj):
        if not name.startswith("_") and name != "run" and _look_up(kind, name) is None:
            value = getattr(obj, name, None)
            if inspect.isroutine(value) or (callable(value) and hasattr(value, "__wrapped__")):
                found[name] = value
    return found


def _batched(obj: object) -> dict[str, Callable[..., Any]]:
    """What `batched_handler` has made for this very object."""
    own = {name: each for name, each in getattr(obj, "__dict__", {}).items() if _is_batched(each)}
    if own:
        for name in dir(type(obj)):
            if not name.startswith("_") and isinstance(_look_up(type(obj), name), property):
                value = getattr(obj, name, None)
                if _is_batched(value):
                    own[name] = value
    return {name: each for name, each in own.items() if not name.startswith("_")}


def _is_batched(value: object) -> bool:
    return callable(value) and hasattr(type(value), "courier_promise")


def warn_of_shadowed_methods(
    kind: type, exclude: Collection[str] = (), stacklevel: int = 2
) -> None:
    """Warns of methods that a client has of its own: `client.stats()` never reaches the server's."""
    for name in sorted((_served_names(kind) & CLIENT_NAMES) - set(exclude)):
        warnings.warn(
            f"{kind.__name__}.{name} is to be called by clients, but client.{name} is the client's own. They "
            f"reach it as client.futures.{name}(…).result(); better give it another name.",
            stacklevel=stacklevel + 1,
        )


def idempotent_methods(kind: type) -> tuple[str, ...]:
    """The names of the methods of a class that may run twice."""
    return tuple(name for name in dir(kind) if getattr(_look_up(kind, name), IDEMPOTENT, False))


def served_methods(kind: type) -> dict[str, Any]:
    """The methods that instances of a class serve, as the class has them; without those of one instance."""
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
    """True if an attribute of a class is a method of its instances. No property is evaluated."""
    if isinstance(value, staticmethod | classmethod):
        return True
    if callable(value):
        return not isinstance(value, type | partial)
    # singledispatchmethod, partialmethod and other descriptors: those of methods give something to call on
    # the class already. There those of properties give themselves; attributes (`__set__`) are not asked.
    its_type = type(value)
    if not hasattr(its_type, "__get__") or hasattr(its_type, "__set__"):
        return False
    try:
        on_class = value.__get__(None, kind)
    except Exception:  # it is for instances only
        return False
    return callable(on_class) and not isinstance(on_class, type)


def _look_up(kind: type, name: str) -> Any:
    """The attribute as the class has it, with no descriptor evaluated."""
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)


def _names(names: Iterable[str]) -> frozenset[str]:
    if isinstance(names, str):
        raise TypeError(f"names to serve are a list of strings, not the string {names!r}")
    found = frozenset(names)
    hidden = sorted(name for name in found if name.startswith("_") and name != "__call__")
    if hidden:
        raise TypeError(f"{', '.join(hidden)}: no client can call a name that begins with '_'")
    return found
