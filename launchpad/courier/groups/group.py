"""Many clients as one: all of them at once, the next one, or the one that a key belongs to.

broadcast      group.m(x) ──▶ every client, side by side      a list of results, in their order
round_robin    group.m(x) ──▶ the next client                 its result
shard_by       group.m(x) ──▶ the client that key(x) is for   its result
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Protocol, TypeVar, cast

from launchpad.courier.groups.choices import NextOne, OneByKey
from launchpad.courier.groups.to_all import ToAll

C = TypeVar("C")


def broadcast(clients: Iterable[Any]) -> Group:
    """All clients as one: a call is made to every one of them, and answered with a list.

    Example:
        def run(self):
            versions = lp.broadcast(self._workers).load("checkpoint-7")    # one for each worker
            for future in lp.broadcast(self._workers).futures.step(): ...  # a list of futures

    Returns when all have answered, in the order of the clients. If some fail, the exception of the
    first of them is raised when all others are done, with a note that lists every failure. For what
    the others returned, use `.futures`.
    """
    return Group(ToAll(_checked(clients, "broadcast")))


def round_robin(clients: Iterable[C]) -> C:
    """All clients in turn: each call is made to the next one.

    Example:
        inference = lp.round_robin(self._replicas)
        actions = [inference.act(observation) for observation in observations]

    Calls of all kinds and methods take from the same turn. Threads may share it; none is left out.
    One that fails is not passed over. To type checkers it is what its clients are.
    """
    return cast("C", Group(NextOne(_checked(clients, "round_robin"))))


def shard_by(clients: Iterable[C], key: Callable[..., Any]) -> C:
    """All clients, each with a share of the keys: a call is made to the one that its key belongs to.

    Example:
        tables = lp.shard_by(self._tables, key=lambda user, *rest, **options: user)
        tables.put("ada", 3)
        tables.get("ada")       # asks the same client: here, in any other process, and tomorrow

    To type checkers it is what its clients are.

    Args:
        clients: their order and number decide who has which keys.
        key: takes a call's arguments and returns an int (taken modulo the number of clients), or
            str, bytes, None or a tuple of these (of which a digest is taken).
    """
    if not callable(key):
        raise TypeError(
            f"shard_by takes a function of a call's arguments as key, not {key!r}: lambda user: user"
        )
    return cast("C", Group(OneByKey(_checked(clients, "shard_by"), key)))


class Calls(Protocol):
    """How a group calls its clients."""

    name: str
    clients: tuple[Any, ...]

    def of(self, clients: Iterable[Any]) -> Calls:
        """The same, for other clients."""

    def call(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """Waits for the answer."""

    def submit(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """One Future of the answer."""

    def begin(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """A future for each client that is asked."""

    def ask(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """The answer, to be awaited."""


class Group:
    """Many clients, called as one. Made by `broadcast`, `round_robin` and `shard_by`.

    `len(group)` and iteration give the clients. Groups pickle. A member may be a group in its turn,
    of those that make one call of one call: `round_robin` and `shard_by`.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    @property
    def futures(self) -> GroupMethods:
        """The same methods, returning at once: a future, or for a broadcast a list of them."""
        return GroupMethods(self._calls.begin)

    @property
    def aio(self) -> GroupMethods:
        """The same methods, to be awaited."""
        return GroupMethods(self._calls.ask)

    def with_options(self, **changes: Any) -> Group:
        """The same group, of clients with other options: `client.with_options`."""
        return Group(self._calls.of([client.with_options(**changes) for client in self]))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._calls.call("__call__", *args, **kwargs)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self._calls.call, _method_name(name))

    def __len__(self) -> int:
        return len(self._calls.clients)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._calls.clients)

    def __reduce__(self) -> tuple[Any, ...]:
        return Group, (self._calls,)

    def __repr__(self) -> str:
        return f"{self._calls.name}({list(self)!r})"


class GroupMethods:
    """The methods of a group's clients, called in another way: `group.futures.step(batch)`."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call("__call__", *args, **kwargs)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self._call, _method_name(name))


def _checked(members: Iterable[Any], group: str) -> tuple[Any, ...]:
    clients = tuple(members)
    if not clients:
        raise ValueError(f"{group} needs at least one client, and was given none")
    for client in clients:
        is_broadcast = isinstance(client, Group) and isinstance(client._calls, ToAll)
        if is_broadcast or not hasattr(client, "futures"):
            raise TypeError(
                f"{group} takes a list of clients, and {client!r} is none. A handle turns into a client when"
                " the program runs: make the group inside the node that the handles were given to."
            )
    return clients


def _method_name(name: str) -> str:
    """Refuses names that copy, pickle and inspection ask every object for: no call is meant."""
    if name.startswith("_"):
        raise AttributeError(f"a group of clients has no {name!r}: remote names have no underscore")
    return name
