"""Groups: many clients called as one, all at once, in turn, or by the key of the arguments.

broadcast      group.m(x) ──▶ every client, side by side          a list of results, in their order
scatter        group.m(parts(xs)) ──▶ part i to client i          a list of results (scatter.py)
sharded        group.m(keys, values) ──▶ its keys to each shard   one joined result (sharded.py)
round_robin    group.m(x) ──▶ the next client                     its result
shard_by       group.m(x) ──▶ the client that key(x) is for       its result
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar, cast

from launchpad.courier.client.fan_out import FanOut, Join, Request
from launchpad.courier.client.partition import shard_of

C = TypeVar("C")


def broadcast(clients: Iterable[Any]) -> ClientGroup:
    """Return the clients as one group: each call goes to every client and returns a list.

    Example:
        def run(self):
            versions = lp.broadcast(self._workers).load("checkpoint-7")    # one for each worker
            for future in lp.broadcast(self._workers).futures.step(): ...  # a list of futures

    A call returns when all clients have answered. The list is in the order of the clients. If some clients
    fail, the call waits for all the others, and then raises the first client's exception with a note that
    lists every failure. To get the results of the others, use `.futures`.
    """
    return ClientGroup(Broadcast(checked(clients, "broadcast")))


def round_robin(clients: Iterable[C]) -> C:
    """Return the clients as one group: each call goes to the next client in turn.

    Example:
        inference = lp.round_robin(self._replicas)
        actions = [inference.act(observation) for observation in observations]

    All methods, and all ways to call them, take turns together. If threads share the group, no client is
    skipped. A client that fails still gets its turns. Type checkers treat the group as one client.
    """
    return cast("C", ClientGroup(SingleTarget(checked(clients, "round_robin"))))


def shard_by(clients: Iterable[C], key: Callable[..., Any]) -> C:
    """Return the clients as one group: each call goes to the client that the call's key belongs to.

    Example:
        tables = lp.shard_by(self._tables, key=lambda user, *rest, **options: user)
        tables.put("ada", 3)
        tables.get("ada")       # asks the same client: here, in other processes, and in later runs

    Type checkers treat the group as one of its clients.

    Args:
        clients: The clients. Their order and number decide which client has which keys.
        key: A function that takes a call's arguments and returns the key. An int belongs to the client of
            its remainder modulo the number of clients. For a str, bytes, None or a tuple of these, a digest
            of the key decides.

    Raises:
        TypeError: The key is not a function, or one of `clients` is not a client.
        ValueError: There are no clients.
    """
    if not callable(key):
        raise TypeError(
            f"shard_by takes a function of a call's arguments as key, not {key!r}: lambda user: user"
        )
    return cast("C", ClientGroup(SingleTarget(checked(clients, "shard_by"), key)))


class GroupMethods:
    """The methods of a group's clients, all called in one way: `group.futures.step(batch)`."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call("__call__", *args, **kwargs)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        # `copy`, `pickle` and `inspect` look up such names on every object. They don't mean to make a call.
        if name.startswith("_"):
            raise AttributeError(
                f"a group of clients has no {name!r}: remote names have no underscore"
            )
        return partial(self._call, name)


class ClientGroup(GroupMethods):
    """Many clients, called as one. Made by `broadcast`, `scatter`, `sharded`, `round_robin` and `shard_by`.

    `len(group)` and iteration give the clients. Groups can be pickled. A member may itself be a group, if
    each of its calls returns one answer: `sharded`, `round_robin` or `shard_by`.
    """

    def __init__(self, calls: FanOut | SingleTarget) -> None:
        super().__init__(calls.call)
        self._calls = calls

    @property
    def futures(self) -> GroupMethods:
        """The methods, returning a future at once, or a list of futures for `broadcast` and `scatter`."""
        return GroupMethods(self._calls.begin)

    @property
    def aio(self) -> GroupMethods:
        """The methods of the group, as awaitables."""
        return GroupMethods(self._calls.ask)

    def with_options(self, **changes: Any) -> ClientGroup:
        """Return a group with other options for all its clients, as `client.with_options` does for one."""
        calls = copy.copy(self._calls)
        calls.clients = tuple(client.with_options(**changes) for client in self)
        return ClientGroup(calls)

    def __len__(self) -> int:
        return len(self._calls.clients)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._calls.clients)

    def __reduce__(self) -> tuple[Any, ...]:
        return ClientGroup, (self._calls,)

    def __repr__(self) -> str:
        return f"{self._calls.name}({list(self)!r})"


class Broadcast(FanOut):
    """A group that makes each call to all its clients. The result is the list of the clients' results."""

    name = "broadcast"

    def split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Request], Join]:
        self.refuse_streams((*args, *kwargs.values()))
        return [Request(i, args, kwargs) for i in range(len(self.clients))], list


class SingleTarget:
    """A group that calls one client: the one that the key belongs to, or the next in turn without `key`.

    Thread-safe.
    """

    answers_with_list = False

    def __init__(self, clients: tuple[Any, ...], key: Callable[..., Any] | None = None) -> None:
        self.name = "round_robin" if key is None else "shard_by"
        self.clients = clients
        self._key = key
        self._turns = itertools.count()  # `next` is atomic, so no two threads get the same turn

    def __reduce__(self) -> tuple[Any, ...]:
        return SingleTarget, (self.clients, self._key)

    def call(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._choose(args, kwargs), method)(*args, **kwargs)

    def submit(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._choose(args, kwargs).futures, method)(*args, **kwargs)

    begin = submit

    def ask(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._choose(args, kwargs).aio, method)(*args, **kwargs)

    def _choose(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        n = len(self.clients)
        if self._key is None:
            return self.clients[next(self._turns) % n]
        return self.clients[shard_of(self._key(*args, **kwargs), n)]


def checked(members: Iterable[Any], group: str) -> tuple[Any, ...]:
    """Return the members as a tuple. Raise an error if there are no members or if some aren't clients."""
    clients = tuple(members)
    if not clients:
        raise ValueError(f"{group} needs at least one client, and was given none")
    for client in clients:
        has_list = isinstance(client, ClientGroup) and client._calls.answers_with_list
        if has_list or not hasattr(client, "futures"):
            raise TypeError(
                f"{group} takes a list of clients, and {client!r} is not a client. A handle turns into a"
                " client when the program runs: make the group inside the node that the handles were given"
                " to."
            )
    return clients
