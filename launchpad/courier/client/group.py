"""Many clients as one: all of them at once, the next one, or the one that a key belongs to.

broadcast      group.m(x) ──▶ every client, side by side          a list of results, in their order
scatter        group.m(parts(xs)) ──▶ part i to client i          the same (scatter.py)
sharded        group.m(keys, values) ──▶ to each what is its own  one result of all (sharded.py)
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
    """All clients as one: a call is made to every one of them, and answered with a list.

    Example:
        def run(self):
            versions = lp.broadcast(self._workers).load("checkpoint-7")    # one for each worker
            for future in lp.broadcast(self._workers).futures.step(): ...  # a list of futures

    Returns when all have answered, in the order of the clients. If some fail, the exception of the
    first of them is raised when all others are done, with a note that lists every failure. For what
    the others returned, use `.futures`.
    """
    return ClientGroup(Broadcast(checked(clients, "broadcast")))


def round_robin(clients: Iterable[C]) -> C:
    """All clients in turn: each call is made to the next one.

    Example:
        inference = lp.round_robin(self._replicas)
        actions = [inference.act(observation) for observation in observations]

    Calls of all kinds and methods take from the same turn. Threads may share it; none is left out.
    One that fails is not passed over. To type checkers it is what its clients are.
    """
    return cast("C", ClientGroup(SingleTarget(checked(clients, "round_robin"))))


def shard_by(clients: Iterable[C], key: Callable[..., Any]) -> C:
    """All clients, each with a share of the keys: a call is made to the one that its key belongs to.

    Example:
        tables = lp.shard_by(self._tables, key=lambda user, *rest, **options: user)
        tables.put("ada", 3)
        tables.get("ada")       # asks the same client: here, in any other process, and tomorrow

    To type checkers it is what its clients are.

    Args:
        clients: their order and number decide which one has which keys.
        key: takes a call's arguments and returns an int (taken modulo the number of clients), or
            str, bytes, None or a tuple of these (of which a digest is taken).

    Raises:
        TypeError: the key is no function, or there are no clients in the list.
    """
    if not callable(key):
        raise TypeError(
            f"shard_by takes a function of a call's arguments as key, not {key!r}: lambda user: user"
        )
    return cast("C", ClientGroup(SingleTarget(checked(clients, "shard_by"), key)))


class GroupMethods:
    """The methods of a group's clients, called in one way: `group.futures.step(batch)`."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call("__call__", *args, **kwargs)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        # Copy, pickle and inspection ask every object for such names: no call is meant.
        if name.startswith("_"):
            raise AttributeError(
                f"a group of clients has no {name!r}: remote names have no underscore"
            )
        return partial(self._call, name)


class ClientGroup(GroupMethods):
    """Many clients, called as one. Made by `broadcast`, `scatter`, `sharded`, `round_robin` and `shard_by`.

    `len(group)` and iteration give the clients. Groups pickle. A member may be a group in its turn,
    of those whose calls have one answer: `sharded`, `round_robin` and `shard_by`.
    """

    def __init__(self, calls: FanOut | SingleTarget) -> None:
        super().__init__(calls.call)
        self._calls = calls

    @property
    def futures(self) -> GroupMethods:
        """The same methods, returning at once: a future; of `broadcast` and `scatter` a list of them."""
        return GroupMethods(self._calls.begin)

    @property
    def aio(self) -> GroupMethods:
        """The same methods, to be awaited."""
        return GroupMethods(self._calls.ask)

    def with_options(self, **changes: Any) -> ClientGroup:
        """The same group, of clients with other options: `client.with_options`."""
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
    """Makes the same call to all clients; the answer is the list of theirs."""

    name = "broadcast"

    def split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Request], Join]:
        self.refuse_streams((*args, *kwargs.values()))
        return [Request(i, args, kwargs) for i in range(len(self.clients))], list


class SingleTarget:
    """Calls the client that the key of the arguments belongs to, or without `key` the next. Thread-safe."""

    answers_with_list = False

    def __init__(self, clients: tuple[Any, ...], key: Callable[..., Any] | None = None) -> None:
        self.name = "round_robin" if key is None else "shard_by"
        self.clients = clients
        self._key = key
        self._turns = itertools.count()  # taken by one thread each

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
    """The members, if they are clients, and some."""
    clients = tuple(members)
    if not clients:
        raise ValueError(f"{group} needs at least one client, and was given none")
    for client in clients:
        has_list = isinstance(client, ClientGroup) and client._calls.answers_with_list
        if has_list or not hasattr(client, "futures"):
            raise TypeError(
                f"{group} takes a list of clients, and {client!r} is none. A handle turns into a client when"
                " the program runs: make the group inside the node that the handles were given to."
            )
    return clients
