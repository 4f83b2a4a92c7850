"""A call to one of many clients: the next one, or the one that a key belongs to."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from launchpad.courier.groups.shard import shard_of

if TYPE_CHECKING:
    from concurrent.futures import Future


class _ToOne:
    """Calls the client that `_choose` names, as that is called itself."""

    def __init__(self, clients: tuple[Any, ...]) -> None:
        self.clients = clients

    def call(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._choose(args, kwargs), method)(*args, **kwargs)

    def submit(self, method: str, /, *args: Any, **kwargs: Any) -> Future[Any]:
        futures = self._choose(args, kwargs).futures
        future: Future[Any] = getattr(futures, method)(*args, **kwargs)
        return future

    begin = submit

    def ask(self, method: str, /, *args: Any, **kwargs: Any) -> Awaitable[Any]:
        aio = self._choose(args, kwargs).aio
        answer: Awaitable[Any] = getattr(aio, method)(*args, **kwargs)
        return answer

    def _choose(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError


class NextOne(_ToOne):
    """Calls one client after the other, from whichever thread."""

    name = "round_robin"

    def __init__(self, clients: tuple[Any, ...]) -> None:
        super().__init__(clients)
        self._turns = itertools.cycle(clients)
        self._lock = threading.Lock()

    def of(self, clients: Iterable[Any]) -> NextOne:
        return NextOne(tuple(clients))

    def __reduce__(self) -> tuple[Any, ...]:
        return NextOne, (self.clients,)

    def _choose(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self._lock:
            return next(self._turns)


class OneByKey(_ToOne):
    """Calls the client that the key of the call's arguments belongs to."""

    name = "shard_by"

    def __init__(self, clients: tuple[Any, ...], key: Callable[..., Any]) -> None:
        super().__init__(clients)
        self._key = key

    def of(self, clients: Iterable[Any]) -> OneByKey:
        return OneByKey(tuple(clients), self._key)

    def _choose(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.clients[shard_of(self._key(*args, **kwargs), len(self.clients))]
