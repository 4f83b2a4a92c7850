"""Many clients as one: all of them at once, the next one, or the one that a key belongs to.

broadcast      group.m(x) ──▶ every client, side by side      a list of results, in their order
round_robin    group.m(x) ──▶ the next client                 its result
shard_by       group.m(x) ──▶ the client that key(x) is for   its result
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from concurrent.futures import Future

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
    return ClientGroup(Broadcast(_checked(clients, "broadcast")))


def round_robin(clients: Iterable[C]) -> C:
    """All clients in turn: each call is made to the next one.

    Example:
        inference = lp.round_robin(self._replicas)
        actions = [inference.act(observation) for observation in observations]

    Calls of all kinds and methods take from the same turn. Threads may share it; none is left out.
    One that fails is not passed over. To type checkers it is what its clients are.
    """
    return cast("C", ClientGroup(SingleTarget(_checked(clients, "round_robin"))))


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
    """
    if not callable(key):
        raise TypeError(
            f"shard_by takes a function of a call's arguments as key, not {key!r}: lambda user: user"
        )
    return cast("C", ClientGroup(SingleTarget(_checked(clients, "shard_by"), key)))


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
    """Many clients, called as one. Made by `broadcast`, `round_robin` and `shard_by`.

    `len(group)` and iteration give the clients. Groups pickle. A member may be a group in its turn,
    of those that make one call of one call: `round_robin` and `shard_by`.
    """

    def __init__(self, calls: Broadcast | SingleTarget) -> None:
        super().__init__(calls.call)
        self._calls = calls

    @property
    def futures(self) -> GroupMethods:
        """The same methods, returning at once: a future, or for a broadcast a list of them."""
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


class Broadcast:
    """Calls all clients, side by side; the answer is the list of theirs.

    As `SingleTarget` it has `call`, which waits; `submit`, which gives one future; `begin`, which gives
    a future for each client; and `ask`, to be awaited.
    """

    name = "broadcast"

    def __init__(self, clients: tuple[Any, ...]) -> None:
        self.clients = clients

    def call(self, method: str, /, *args: Any, **kwargs: Any) -> list[Any]:
        futures = self.begin(method, *args, **kwargs)
        try:
            for future in futures:
                future.exception()
        except BaseException:  # interrupted: these are not waited for any more
            for future in futures:
                future.cancel()
            raise
        return self._gather(futures)

    def submit(self, method: str, /, *args: Any, **kwargs: Any) -> Future[list[Any]]:
        from launchpad.courier.client.future import CourierFuture

        whole = CourierFuture()
        whole.set_running_or_notify_cancel()
        futures = self.begin(method, *args, **kwargs)
        n_done = itertools.count(1)

        def complete(_: Future[Any]) -> None:
            if next(n_done) < len(futures):
                return
            try:
                whole.set_result(self._gather(futures))
            except BaseException as error:
                whole.set_exception(error)

        for future in futures:
            future.add_done_callback(complete)
        return whole

    def begin(self, method: str, /, *args: Any, **kwargs: Any) -> list[Future[Any]]:
        """A future in any case: a client that cannot be called must not lose the others' answers."""
        from concurrent.futures import Future

        futures: list[Future[Any]] = []
        for client in self.clients:
            try:
                futures.append(getattr(client.futures, method)(*args, **kwargs))
            except Exception as error:
                futures.append(Future())
                futures[-1].set_exception(error)
        return futures

    async def ask(self, method: str, /, *args: Any, **kwargs: Any) -> list[Any]:
        import asyncio

        calls = [getattr(client.aio, method)(*args, **kwargs) for client in self.clients]
        results = await asyncio.gather(*calls, return_exceptions=True)
        self._check(results)
        return results

    def _gather(self, futures: list[Future[Any]]) -> list[Any]:
        """The results of futures that are done."""
        self._check([future.exception() for future in futures])
        return [future.result() for future in futures]

    def _check(self, outcomes: list[Any]) -> None:
        """Raises the first of the errors among them."""
        failed = {i: each for i, each in enumerate(outcomes) if isinstance(each, BaseException)}
        if not failed:
            return
        lines = [f"{len(failed)} of {len(self.clients)} clients of this broadcast failed:"]
        for i, error in failed.items():
            text = f"{type(error).__name__}: {error}"
            text = text if len(text) <= 200 else f"{text[:199]}…"
            lines.append(f"  {i}: {self.clients[i]!r}: {text}")
        first = next(iter(failed.values()))
        first.add_note("\n".join(lines))
        raise first


class SingleTarget:
    """Calls the client that the key of the arguments belongs to, or without `key` the next. Thread-safe."""

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


def shard_of(key: Any, n: int) -> int:
    """Which of `n` shards a key belongs to: the same in every process, on every host, in every run.

    An int modulo `n`; for other keys a digest of their content. Not `hash`: that of a str differs from
    process to process. TypeError for keys of other types than int, str, bytes, None and tuples of these.
    """
    if hasattr(key, "__index__"):  # numpy's ints, too
        return int(key.__index__() % n)
    import hashlib

    digest = hashlib.blake2b(repr(_plain(key)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % n


def _plain(key: Any) -> Any:
    """The key, of types whose repr is complete, and the same in every version of Python."""
    if isinstance(key, tuple):
        return tuple(_plain(each) for each in key)
    if hasattr(key, "__index__"):
        return int(key.__index__())
    if isinstance(key, str):
        return key.encode("unicode_escape").decode()
    if key is None or isinstance(key, bytes):
        return key if key is None else bytes(key)
    raise TypeError(
        f"the key of a sharded call is an int, str, bytes, None or a tuple of these, not {key!r}"
        f" of type {type(key).__qualname__}: others are not the same in every process"
    )


def _checked(members: Iterable[Any], group: str) -> tuple[Any, ...]:
    clients = tuple(members)
    if not clients:
        raise ValueError(f"{group} needs at least one client, and was given none")
    for client in clients:
        is_broadcast = isinstance(client, ClientGroup) and isinstance(client._calls, Broadcast)
        if is_broadcast or not hasattr(client, "futures"):
            raise TypeError(
                f"{group} takes a list of clients, and {client!r} is none. A handle turns into a client when"
                " the program runs: make the group inside the node that the handles were given to."
            )
    return clients
