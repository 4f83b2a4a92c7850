"""gloo finds its ranks in our store, and what waits in it can be freed from another thread."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import timedelta
from typing import Any

import pytest

from launchpad.collectives import gloo_sockets

pytest.importorskip("torch")
import torch
from torch import distributed as dist

from launchpad.collectives.torch_store import CourierStore

DEADLINE_S = 60


class Ranks:
    """Ranks of gloo that are threads of this process, each with a group and a store."""

    def __init__(self, client: Any, generation: int, size: int) -> None:
        self.stores = [CourierStore(client, generation) for _ in range(size)]
        self._pool = ThreadPoolExecutor(size)
        makings = [self._pool.submit(make, self.stores[rank], rank, size) for rank in range(size)]
        self.groups = [making.result() for making in makings]

    def submit(self, rank: int, op: str, *arguments: Any) -> Future[Any]:
        return self._pool.submit(
            lambda: getattr(self.groups[rank], op)(*arguments).wait(timedelta(seconds=DEADLINE_S))
        )

    def shut(self) -> None:
        gloo_sockets.shut(
            [v for store in self.stores for v in store.seen.values()], len(self.stores)
        )

    def close(self) -> None:
        self.groups.clear()
        self._pool.shutdown()


def make(store: Any, rank: int, size: int) -> Any:
    """A group of gloo. Returns when it is connected to all ranks."""
    options = dist.ProcessGroupGloo._Options()
    options._devices = [dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
    options._timeout = timedelta(seconds=2 * DEADLINE_S)
    return dist.ProcessGroupGloo(store, rank, size, options)


def test_ranks_that_wait_for_each_other_are_freed_and_other_connections_stay(client: Any) -> None:
    ranks, others = Ranks(client, 1, 3), Ranks(client, 2, 2)
    ours, theirs = socket.socketpair()
    listens = socket.create_server(("127.0.0.1", 0))
    of_user = socket.create_connection(listens.getsockname())
    # No message of rank 0 is missing: each of the others waits for one that the other does not send.
    waiting = [ranks.submit(1, "recv", [torch.ones(1)], 2, 0)]
    waiting += [ranks.submit(2, "recv", [torch.ones(1)], 1, 0)]
    of_others = others.submit(0, "recv", [received := torch.zeros(1)], 1, 0)

    ranks.shut()

    for future in waiting:
        with pytest.raises(RuntimeError, match="gloo"):
            future.result(DEADLINE_S)
    others.submit(1, "send", [torch.ones(1)], 0, 0).result(DEADLINE_S)
    of_others.result(DEADLINE_S)
    assert received.item() == 1
    ours.send(b"x")
    of_user.send(b"x")
    for each in (ranks, others, ours, theirs, of_user, listens):
        each.close()


def test_a_rank_that_waits_for_others_to_connect_to_it_is_freed(client: Any) -> None:
    store = CourierStore(client, 1)
    with ThreadPoolExecutor() as pool:
        making = pool.submit(make, store, 0, 3)
        here = store.get("0/0")
        # Of two ranks the one with the greater address connects: these two, which are not there.
        for rank in (1, 2):
            there = socket.inet_aton(f"127.0.0.{1 + rank}")
            store.set(f"0/{rank}", here.replace(socket.inet_aton("127.0.0.1"), there))

        gloo_sockets.shut(store.seen.values(), 3)

        assert wait([making], DEADLINE_S).done


def test_later_operations_fail_at_once_and_the_groups_can_be_dropped(client: Any) -> None:
    ranks = Ranks(client, 1, 2)
    ranks.shut()

    with pytest.raises(RuntimeError, match="gloo"):
        ranks.submit(0, "allreduce", [torch.ones(4)]).result(DEADLINE_S)

    dropped = threading.Thread(target=ranks.close)  # gloo's destructor waits for what is under way
    dropped.start()
    dropped.join(DEADLINE_S)
    assert not dropped.is_alive()


def test_all_calls_of_the_store_raise_torchs_error_after_the_generation(client: Any) -> None:
    client.end(1)
    store = CourierStore(client, 1)

    for call in (
        lambda: store.set("key", "value"),
        lambda: store.get("key"),
        lambda: store.check(["key"]),
        lambda: store.add("key", 1),
        lambda: store.append("key", "value"),
        lambda: store.compare_set("key", "", "value"),
        lambda: store.delete_key("key"),
        store.num_keys,
    ):
        with pytest.raises(dist.DistStoreError, match="generation 1 has ended"):
            call()


def test_torchs_own_functions_work_over_our_store(client: Any) -> None:
    store = CourierStore(client, 1)
    prefixed = dist.PrefixStore("p", store)

    prefixed.set("key", "value")
    assert prefixed.get("key") == b"value"
    assert [prefixed.add("n", 1), prefixed.add("n", 2)] == [1, 3]
    assert prefixed.check(["key", "n"])
    assert not prefixed.check(["key", "absent"])
    assert prefixed.compare_set("key", "value", "other") == b"other"
    prefixed.multi_set(["a", "b"], ["1", "2"])
    assert prefixed.multi_get(["a", "b"]) == [b"1", b"2"]
    prefixed.append("a", "1")
    assert store.get("p/a") == b"11"
    assert prefixed.num_keys() == 4
    assert prefixed.delete_key("a")
    with pytest.raises(dist.DistStoreError, match=r"not set within 0\.01 s"):
        prefixed.wait(["never"], timedelta(seconds=0.01))
