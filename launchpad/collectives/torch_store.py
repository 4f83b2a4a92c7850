"""CourierStore: a store for torch.distributed that keeps its values at the rendezvous of a collective.

torch needs a store in which its ranks find each other. torch's own store is a TCP server in rank 0, which
needs a port, and ends when rank 0 dies. This store is an ordinary client of the rendezvous: it doesn't need a
port, it outlives generations, and its waits end when a rank fails.
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
"""The size of the largest value to keep, in bytes. gloo's addresses take only a few hundred."""


class CourierStore(Store):  # type: ignore[misc, unused-ignore]  # Any without torch
    """A `torch.distributed.Store` whose values are at a StoreServer. torch's threads may share it.

    torch keeps only the C++ half of this object alive. Keep the object as long as the group that is made with
    it.

    Args:
        client: A client of a server that inherits `StoreServer`.
        generation: The generation whose keys it uses.
        prefix: A prefix of each key, for several groups in one generation.
    """

    def __init__(self, client: Any, generation: int, prefix: str = "") -> None:
        super().__init__()
        self._client = client
        self._generation = generation
        self._prefix = prefix
        self._timeout_s = _DEFAULT_S
        self._seen: dict[str, bytes] = {}

    @property
    def seen(self) -> Mapping[str, bytes]:
        """The short values that this store has set or read, by key. They include gloo's socket addresses."""
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
        present_keys = self._call("store_keys")
        return {self._prefix + key for key in keys}.issubset(present_keys)

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
        present_keys = self._call("store_keys")
        return sum(key.startswith(self._prefix) for key in present_keys)

    # torch looks for the methods under these names.
    deleteKey = delete_key  # noqa: N815
    getNumKeys = num_keys  # noqa: N815

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
        """Wait until all values are set, and return them.

        The server ends the wait. The client's deadline is later, and only matters if the server does not end
        it.
        """
        prefixed_keys = [self._prefix + key for key in keys]
        limit_s = timeout_s + _MARGIN_S
        values: list[bytes] = self._call("store_get", prefixed_keys, timeout_s, limit_s=limit_s)
        for key, value in zip(keys, values, strict=True):
            self._remember(key, value)
        return values

    def _remember(self, key: str, value: bytes) -> None:
        if len(value) <= _LARGEST_ADDRESS:
            self._seen[key] = value

    def _call(self, method: str, *arguments: Any, limit_s: float | None = None) -> Any:
        """Call the server. If this fails, raise DistStoreError, because torch and `cause_of` expect it."""
        client = self._client if limit_s is None else self._client.with_options(timeout_s=limit_s)
        try:
            return getattr(client, method)(self._generation, *arguments)
        except (CourierError, LookupError, TimeoutError) as error:
            raise DistStoreError(str(error)) from error


class TorchStores:
    """The stores of one rank in one generation. The generation's end frees threads in the stores' groups.

    Args:
        client: The client of the rendezvous.
        generation: The generation that the stores are for.
    """

    def __init__(self, client: Any, generation: Generation) -> None:
        self._client = client
        self._generation = generation
        self._stores: list[CourierStore] = []
        generation.on_end(lambda error: self.shut())
        generation.on_stop(self.shut)

    def new(self, name: str) -> CourierStore:
        """Return a store with separate keys. Ranks that want to find each other must use the same name."""
        store = CourierStore(self._client, self._generation.number, f"{name}/")
        # Keep the store alive here, because torch keeps only its C++ half alive.
        self._stores.append(store)
        return store

    def shut(self) -> None:
        """End gloo's connections in all groups that were made, or are being made, with these stores."""
        values = [value for store in self._stores for value in store.seen.values()]
        gloo_sockets.shut(values, len(self._generation.members))


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
