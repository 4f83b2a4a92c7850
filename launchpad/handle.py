"""Handle: a reference to a node. Passing it to another node makes an edge of the graph."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, Self, TypeVar

from launchpad.courier.codec import by_value
from launchpad.runtime import user_code
from launchpad.traverse import Found, walk

ClientT = TypeVar("ClientT", covariant=True)
T = TypeVar("T")


class GraphNode(Protocol):
    """The node of a handle, with what planning reads: the line that added the node, and the node's group."""

    added_at: str
    added_to: str

    def arguments(self) -> Mapping[str, Any]: ...


class Dereferenceable(abc.ABC, Generic[ClientT]):
    """A placeholder for a value. When a worker starts, the value replaces the placeholder.

    Example:
        class Secret(lp.Dereferenceable[str]):
            def __init__(self, path: str):
                self.path = path

            def dereference(self) -> str:           # runs in the worker, reads the file there
                return pathlib.Path(self.path).read_text()

        token = lp.maybe_dereference(Secret("token.txt"))
    """

    @abc.abstractmethod
    def dereference(self) -> ClientT:
        """Return the value that this stands for. launchpad calls this where the node runs."""


class Handle(Dereferenceable[ClientT]):
    """A reference to a node while the program is described; in a worker it turns into a client.

    Pass handles to nodes as arguments. launchpad finds them in nested lists, tuples, dicts, sets,
    dataclasses, attrs classes, namedtuples, `functools.partial`, closures, `Deferred` and the attributes of
    objects. When a worker unpickles its arguments, it gets a client instead of each handle.

    To write a handle class of your own, keep an `Address` in an attribute and resolve it in `dereference`:

    Example:
        class BoardHandle(lp.Handle[str]):
          def __init__(self, node, address):
            super().__init__(node)
            self._address = address

          def dereference(self):
            return "http://" + self._address.resolve()
    """

    can_be_dereferenced = True

    def __init__(self, node: GraphNode) -> None:
        self.node = node

    # Hide this from type checkers, which would otherwise accept any method of a handle.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            # Python calls this only for missing attributes. Most often the caller meant a method of the
            # client.
            if name.startswith("_"):
                raise AttributeError(name)
            raise AttributeError(
                f"{type(self).__name__} has no {name!r}: it is a handle, and stands for"
                f" {self.__dict__.get('node', 'a node')} until the program runs. Pass it to another node,"
                " which gets a client in its place, or call handle.dereference() after lp.launch();"
                f" then client.{name}(…)."
            )

    def __copy__(self, memo: object = None) -> Self:
        # A copied container, as made by dataclasses.asdict, keeps the same handle, since both refer to one
        # node.
        return self

    __deepcopy__ = __copy__

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.__dict__.get('node', 'a worker')}>"


class Deferred(Dereferenceable[T]):
    """A value that is built once where the node runs, instead of where the program is described.

    Use it for values that are large or cannot be pickled: environments, data sets, database connections.
    `fn` receives clients instead of the handles among its arguments.

    Example:
        environment = lp.Deferred(make_environment, "CartPole-v1")
        program.add_node(lp.PyClassNode(Actor, environment, learner), label="actor")

    Raises:
        DefinitionError: `fn` does not take these arguments, or is an async function.
    """

    def __init__(self, fn: Callable[..., T], *args: Any, **kwargs: Any) -> None:
        if not callable(fn):
            raise TypeError(f"Deferred needs a function to call later, got {fn!r}")
        user_code.check_constructor(f"Deferred({user_code.name_of(fn)})", fn, may_be_generator=True)
        user_code.check_arguments(f"Deferred({user_code.name_of(fn)})", fn, args, kwargs)
        self.fn = fn
        self.args = args
        self.kwargs = kwargs

    def dereference(self) -> T:
        return self.fn(*self.args, **self.kwargs)

    def __repr__(self) -> str:
        return f"Deferred({getattr(self.fn, '__qualname__', self.fn)})"


def handles_in(node: GraphNode, name: str) -> Iterator[Found]:
    """Find the handles among a node's arguments, each with the path to it."""
    for where, value in node.arguments().items():
        for place in walk(value, f"{name}.{where}", stop_at=(Handle,)):
            if isinstance(place.value, Handle):
                yield place


def maybe_dereference(value: Any) -> Any:
    """Return the client or value that a handle or Deferred stands for; return anything else unchanged.

    Example:
        learner = lp.maybe_dereference(given)       # a handle becomes a client; a Learner stays itself
    """
    return value.dereference() if isinstance(value, Dereferenceable) else value


class ClientPickler(by_value.Pickler):
    """A pickler whose handles and Deferreds unpickle as the clients and values that they stand for."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Handle):
            state = {name: value for name, value in vars(obj).items() if name != "node"}
            return _dereferenced, (type(obj), state)
        if isinstance(obj, Deferred):
            return _built, (obj.fn, obj.args, obj.kwargs)
        return super().reducer_override(obj)


building: ContextVar[Callable[[Callable[[], Any]], Any]] = ContextVar(
    "launchpad_building", default=lambda build: build()
)
"""The function that builds the value of an unpickled Deferred; it takes a function without arguments."""


def _dereferenced(kind: type[Handle[Any]], state: dict[str, Any]) -> Any:
    handle = kind.__new__(kind)
    handle.__dict__.update(state)
    return handle.dereference()


def _built(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return building.get()(functools.partial(fn, *args, **kwargs))
