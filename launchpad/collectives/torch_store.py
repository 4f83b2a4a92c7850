"""CourierStore: what torch.distributed takes for its store; the rendezvous of a collective has the values.

torch needs a store in which its ranks find each other. Its own is a TCP server in rank 0, with a port, and
with an end when that rank dies. This is a client of the rendezvous, like any other: it needs no port, it
outlives generations, and a wait in it ends when a rank has failed.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from torch.distributed import DistStoreError, Store  # type: ignore[attr-defined, unused-ignore]

from launchpad.collectives import gloo_sockets
from launchpad.collectives.generation import Generation
from launchpad.courier import CourierError

_MARGIN_S = 10.0
_DEFAULT_S = 300.0
_LARGEST_ADDRESS = 1 << 16
"""Bytes: gloo's addresses take a few hundred; what is much larger is something else, and not kept."""


class CourierStore(Store):  # type: ignore[misc, unused-ignore]  # Any without torch
    """A `torch.distributed.Store` over a client of `StoreServer`. One per rank; torch's threads may share it.

    torch keeps only its C++ half alive: keep this object as long as the group that is made with it.

    Args:
        client: Of a server that inherits `StoreServer`.
        generation: Which keys.
        prefix: Before each key: for several groups in one generation.
    """

    def __init__(self, client: Any, generation: int, prefix: str = "") -> None:
        super().__init__()
        self._client, self._generation, self._prefix = client, generation, prefix
        self._timeout_s = _DEFAULT_S
        self._seen: dict[str, bytes] = {}

    @property
    def seen(self) -> Mapping[str, bytes]:
        """What short values have been set and read here, by key: the addresses of gloo's sockets, too."""
        return dict(self._seen)

    def set(self, key: str, value: str | bytes) -> None:
        data = _bytes(value)
        self._remember(key, data)
        self._call("store_set", self._prefix + key, data)

    def get(self, key: str) -> bytes:
        return self._wait([key], self._timeout_s)[0]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        return self._wait(keys, self._timeout_s)

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def wait(self, keys: Sequence[str], timeout: datetime.timedelta | None = None) -> None:
        self._wait(keys, self._timeout_s if timeout is None else timeout.total_seconds())

    def check(self, keys: Sequence[str]) -> bool:
        there = self._call("store_keys")
        return {self._prefix + key for key in keys}.issubset(there)

    def add(self, key: str, number: int) -> int:
        total: int = self._call("store_add", self._prefix + key, number)
        return total

    def append(self, key: str, value: str | bytes) -> None:
        self._call("store_append", self._prefix + key, _bytes(value))

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        value: bytes = self._call(
            "store_compare_set", self._prefix + key, _bytes(expected), _bytes(desired)
        )
        return value

    def delete_key(self, key: str) -> bool:
        was_there: bool = self._call("store_delete", self._prefix + key)
        return was_there

    def num_keys(self) -> int:
        there = self._call("store_keys")
        return sum(key.startswith(self._prefix) for key in there)

    deleteKey, getNumKeys = delete_key, num_keys  # noqa: N815  # by which torch looks for them

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        self._timeout_s = timeout.total_seconds()

    @property
    def timeout(self) -> datetime.timedelta:
        return datetime.timedelta(seconds=self._timeout_s)

    def has_extended_api(self) -> bool:
        return True

    def clone(self) -> CourierStore:
        return self

    def _wait(self, keys: Sequence[str], timeout_s: float) -> list[bytes]:
        """The values, once all are set. The server ends the wait; a later deadline is in case it does not."""
        prefixed = [self._prefix + key for key in keys]
        limit_s = timeout_s + _MARGIN_S
        values: list[bytes] = self._call("store_get", prefixed, timeout_s, limit_s=limit_s)
        for key, value in zip(keys, values, strict=True):
            self._remember(key, value)
        return values

    def _remember(self, key: str, value: bytes) -> None:
        if len(value) <= _LARGEST_ADDRESS:
            self._seen[key] = value

    def _call(self, method: str, *arguments: Any, limit_s: float | None = None) -> Any:
        """Raises DistStoreError whatever a call fails of: torch, and `cause_of`, know it."""
        client = self._client if limit_s is None else self._client.with_options(timeout_s=limit_s)
        try:
            return getattr(client, method)(self._generation, *arguments)
        except (CourierError, LookupError, TimeoutError) as error:
            raise DistStoreError(str(error)) from error


class TorchStores:
    """The stores of one rank in one generation. When that ends, the groups made with them are freed.

    Args:
        client: Of the rendezvous.
        generation: The one that they are for.
    """

    def __init__(self, client: Any, generation: Generation) -> None:
        self._client, self._generation = client, generation
        self._stores: list[CourierStore] = []
        generation.on_end(lambda error: self.shut())
        generation.on_stop(self.shut)

    def new(self, name: str) -> CourierStore:
        """A store with keys of its own, which has this name in all ranks that are to meet there."""
        store = CourierStore(self._client, self._generation.number, f"{name}/")
        self._stores.append(store)  # torch keeps no more than the C++ half of it
        return store

    def shut(self) -> None:
        """Ends gloo's connections of all groups that were made with these stores, or are in the making."""
        published = [value for store in self._stores for value in store.seen.values()]
        gloo_sockets.shut(published, len(self._generation.members))


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
