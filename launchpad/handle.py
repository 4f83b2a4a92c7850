"""Handle: what a node gives to others. Passed to another node, it is an edge of the graph."""

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
    """What planning reads of a handle's node: where the user's code added it, and to what."""

    added_at: str
    added_to: str

    def arguments(self) -> Mapping[str, Any]: ...


class Dereferenceable(abc.ABC, Generic[ClientT]):
    """A value that is replaced by what it stands for when a worker starts.

    Example:
        class Secret(lp.Dereferenceable[str]):
            def __init__(self, path: str):
                self.path = path

            def dereference(self) -> str:           # read where the worker is
                return pathlib.Path(self.path).read_text()

        token = lp.maybe_dereference(Secret("token.txt"))
    """

    @abc.abstractmethod
    def dereference(self) -> ClientT:
        """What it stands for. Called where the node runs."""


class Handle(Dereferenceable[ClientT]):
    """Stands for a node while the program is described; in a worker it turns into a client.

    Handles are found in nested lists, tuples, dicts, sets, dataclasses, attrs classes, namedtuples,
    `functools.partial`, closures, `Deferred` and the attributes of objects. A worker unpickles its
    arguments with a client in the place of each handle.

    To make one of your own, keep an `Address` in an attribute and resolve it in `dereference`:

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

    if not TYPE_CHECKING:  # or type checkers would accept any method of a handle

        def __getattr__(self, name: str) -> NoReturn:
            # Reached only for what is missing: most often a call that was meant for the client.
            if name.startswith("_"):
                raise AttributeError(name)
            raise AttributeError(
                f"{type(self).__name__} has no {name!r}: it is a handle, and stands for"
                f" {self.__dict__.get('node', 'a node')} until the program runs. Pass it to another node,"
                " which gets a client in its place, or call handle.dereference() after lp.launch();"
                f" then client.{name}(…)."
            )

    def __copy__(self, memo: object = None) -> Self:
        # Also in a copy of its container (dataclasses.asdict) it stands for the same node.
        return self

    __deepcopy__ = __copy__

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.__dict__.get('node', 'a worker')}>"


class Deferred(Dereferenceable[T]):
    """A value built where the node runs, once, instead of where the program is described.

    For what cannot be pickled or is large: environments, data sets, database connections.
    Handles among its arguments arrive in `fn` as clients.

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
        self.fn, self.args, self.kwargs = fn, args, kwargs

    def dereference(self) -> T:
        return self.fn(*self.args, **self.kwargs)

    def __repr__(self) -> str:
        return f"Deferred({getattr(self.fn, '__qualname__', self.fn)})"


def handles_in(node: GraphNode, name: str) -> Iterator[Found]:
    """The handles among a node's arguments, each with the path to it."""
    for where, value in node.arguments().items():
        found = walk(value, f"{name}.{where}", stop_at=(Handle,))
        yield from (each for each in found if isinstance(each.value, Handle))


def maybe_dereference(value: Any) -> Any:
    """What a handle or Deferred stands for; anything else as it is.

    Example:
        learner = lp.maybe_dereference(given)       # of a handle the client; a learner itself stays one
    """
    return value.dereference() if isinstance(value, Dereferenceable) else value


class ClientPickler(by_value.Pickler):
    """Handles and Deferreds become, where they are unpickled, the clients and values they stand for."""

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
"""What calls the function of a Deferred that is unpickled."""


def _dereferenced(kind: type[Handle[Any]], state: dict[str, Any]) -> Any:
    handle = kind.__new__(kind)
    handle.__dict__.update(state)
    return handle.dereference()


def _built(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return building.get()(functools.partial(fn, *args, **kwargs))
