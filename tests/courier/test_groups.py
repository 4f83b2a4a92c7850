"""Groups: many clients as one."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import launchpad as lp
from launchpad import courier
from launchpad.courier.client.partition import shard_of


@pytest.fixture
def clients(serve, connect, short_directory, request) -> list[courier.Client[Any]]:
    """Clients of three servers, which know their numbers."""
    found = []
    for i in range(3):
        address = f"unix:{short_directory}/{i}"
        serve(
            address,
            name=f"server-{i}",
            number=lambda i=i: i,
            number_of=lambda key, i=i: i,
            add=lambda x, *, to=0, i=i: (i, x + to),
            fail_if=lambda *which, i=i: _fail_if(i, which),
            __call__=lambda x, i=i: (i, x),
        )
        found.append(connect(address))
    return found


def _fail_if(i: int, which: tuple[int, ...]) -> int:
    if i in which:
        raise LookupError(f"{i} has none")
    return i


class FakeClient:
    """Answers without a server; `futures` and `aio` as a client has them."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.options: dict[str, Any] = {}

    @property
    def futures(self) -> Any:
        return FakeMethods(self.number, "futures")

    @property
    def aio(self) -> Any:
        return FakeMethods(self.number, "aio")

    def ask(self, *args: Any, **kwargs: Any) -> Any:
        return self.number, args, kwargs

    def with_options(self, **changes: Any) -> FakeClient:
        copied = FakeClient(self.number)
        copied.options = changes
        return copied


class FakeMethods:
    def __init__(self, number: int, kind: str) -> None:
        self.number, self.kind = number, kind

    def ask(self, *args: Any) -> Any:
        if self.kind == "aio":
            return self._answer(*args)
        future: Future[Any] = Future()
        future.set_result((self.number, args))
        return future

    async def _answer(self, *args: Any) -> Any:
        await asyncio.sleep(0)
        if self.number in args:
            raise LookupError(f"{self.number} has none")
        return self.number, args


FAKES: Any = [FakeClient(i) for i in range(3)]


# --- broadcast -----------------------------------------------------------------------------------


def test_a_broadcast_asks_all_and_answers_in_their_order(clients) -> None:
    group = lp.broadcast(clients)

    assert group.number() == [0, 1, 2]
    assert group.add(1, to=2) == [(0, 3), (1, 3), (2, 3)]
    assert group("x") == [(0, "x"), (1, "x"), (2, "x")]


def test_a_broadcast_asks_all_side_by_side(serve, connect, short_directory) -> None:
    barrier = threading.Barrier(3)
    addresses = [f"unix:{short_directory}/{i}" for i in range(3)]
    for address in addresses:
        serve(address, meet=lambda: barrier.wait(20) >= 0)

    assert lp.broadcast(connect(address) for address in addresses).meet() == [True] * 3


def test_the_futures_of_a_broadcast_are_a_list(clients) -> None:
    futures = lp.broadcast(clients).futures.fail_if(1)

    assert [futures[0].result(20), futures[2].result(20)] == [0, 2]
    with pytest.raises(LookupError, match="1 has none"):
        futures[1].result(20)


def test_the_first_failure_of_a_broadcast_is_raised_and_lists_them_all(clients) -> None:
    with pytest.raises(LookupError, match="1 has none") as caught:
        lp.broadcast(clients).fail_if(2, 1)

    assert caught.value.__notes__ == [
        "2 of 3 clients of this broadcast failed:\n"
        f"  1: {clients[1]!r}: LookupError: 1 has none\n"
        f"  2: {clients[2]!r}: LookupError: 2 has none"
    ]


def test_a_broadcast_that_fails_has_waited_for_all(serve, connect, short_directory, gate) -> None:
    ended = threading.Event()
    serve(f"unix:{short_directory}/0", work=lambda: 1 / 0)
    serve(f"unix:{short_directory}/1", work=lambda: (gate.wait(20), ended.set()))
    group = lp.broadcast(connect(f"unix:{short_directory}/{i}") for i in range(2))
    timer = threading.Timer(0.02, gate.set)
    timer.start()

    with pytest.raises(ZeroDivisionError):
        group.work()

    assert ended.is_set()
    timer.join()


def test_a_client_that_cannot_be_asked_does_not_lose_the_answers_of_the_others(clients) -> None:
    class Closed:
        @property
        def futures(self) -> Any:
            return self

        def number(self) -> Any:
            raise OSError("closed")

    futures = lp.broadcast([clients[0], Closed(), clients[2]]).futures.number()

    assert [futures[0].result(20), futures[2].result(20)] == [0, 2]
    with pytest.raises(OSError, match="closed"):
        futures[1].result(0)


def test_a_broadcast_that_is_interrupted_as_it_begins_cancels_what_it_has_begun() -> None:
    begun: Future[Any] = Future()

    def interrupt() -> None:
        raise KeyboardInterrupt

    group: Any = lp.broadcast(
        SimpleNamespace(futures=SimpleNamespace(ask=ask)) for ask in (lambda: begun, interrupt)
    )

    with pytest.raises(KeyboardInterrupt):
        group.ask()

    assert begun.cancelled()


def test_a_broadcast_can_be_awaited() -> None:
    group = lp.broadcast(FAKES)

    async def ask() -> Any:
        return await group.aio.ask("x")

    async def fail() -> Any:
        return await group.aio.ask(1, 2)

    assert asyncio.run(ask()) == [(0, ("x",)), (1, ("x",)), (2, ("x",))]
    with pytest.raises(LookupError, match="1 has none") as caught:
        asyncio.run(fail())
    assert caught.value.__notes__[0].startswith("2 of 3 clients of this broadcast failed:")


# --- round_robin ---------------------------------------------------------------------------------


def test_round_robin_asks_one_after_the_other(clients) -> None:
    group = lp.round_robin(clients)

    assert [group.number() for _ in range(4)] == [0, 1, 2, 0]
    assert group.futures.number().result(20) == 1
    assert group("x") == (2, "x")


def test_round_robin_leaves_none_out_when_threads_share_it() -> None:
    group = lp.round_robin(FAKES)
    asked: Counter[int] = Counter()
    lock = threading.Lock()

    def ask() -> None:
        numbers = Counter(group.ask()[0] for _ in range(300))
        with lock:
            asked.update(numbers)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert asked == {0: 400, 1: 400, 2: 400}


def test_round_robin_can_be_awaited() -> None:
    group = lp.round_robin(FAKES)

    async def ask() -> Any:
        return [await group.aio.ask() for _ in range(2)]

    assert asyncio.run(ask()) == [(0, ()), (1, ())]


# --- shard_by ------------------------------------------------------------------------------------


def test_a_sharded_call_goes_to_the_client_that_its_key_is_for(clients) -> None:
    group = lp.shard_by(clients, key=lambda x, *, to: x)

    assert [group.add(x, to=0) for x in range(4)] == [(0, 0), (1, 1), (2, 2), (0, 3)]
    assert group.futures.add(4, to=1).result(20) == (1, 5)


def test_keys_belong_to_the_same_shard_in_every_process() -> None:
    keys = [
        "ada",
        "Ω",
        b"ada",
        None,
        ("user", 3),
        2**70,
        -1,
        True,
        np.int32(5),
        ("a", (None, b"x")),
    ]
    code = (
        "import numpy as np; from launchpad.courier.client.partition import shard_of;"
        f"print([shard_of(key, 1000) for key in {keys!r}])"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7"}

    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    ).stdout

    assert printed == f"{[shard_of(key, 1000) for key in keys]}\n"
    assert shard_of("ada", 1000) == 369  # and in every version: stored data depend on it


def test_keys_are_spread_over_the_shards() -> None:
    shares = Counter(shard_of(f"user-{i}", 4) for i in range(4000))

    assert min(shares.values()) > 900


@given(
    st.recursive(st.none() | st.text() | st.binary() | st.integers(), lambda it: st.tuples(it, it))
)
def test_every_key_has_a_shard(key: Any) -> None:
    assert 0 <= shard_of(key, 7) < 7
    assert shard_of(key, 7) == shard_of(pickle.loads(pickle.dumps(key)), 7)


@pytest.mark.parametrize("key", [1.5, object(), ["a"], ("a", 2.0), {"a": 1}])
def test_a_key_that_may_differ_between_processes_is_refused(key: Any) -> None:
    group = lp.shard_by(FAKES, key=lambda it: it)

    with pytest.raises(TypeError, match="int, str, bytes, None or a tuple of these"):
        group.ask(key)


def test_a_key_that_is_no_function_is_refused() -> None:
    with pytest.raises(
        TypeError, match="takes a function of a call's arguments as key, not 'user'"
    ):
        lp.shard_by(FAKES, key="user")


# --- all of them ---------------------------------------------------------------------------------


def by_first(x: Any) -> Any:
    return x


GROUPS: Any = [lp.broadcast, lp.round_robin, lambda clients: lp.shard_by(clients, by_first)]
ALL: Any = [*GROUPS, lp.scatter, lambda clients: lp.sharded(clients, lp.HashPartition())]


@pytest.mark.parametrize("make", ALL)
def test_an_empty_group_is_refused(make) -> None:
    with pytest.raises(ValueError, match="at least one client"):
        make([])


@pytest.mark.parametrize("make", ALL)
def test_handles_are_refused_with_the_next_step(make) -> None:
    handle = lp.Program("p").add_node(lp.CourierNode(dict), label="server")

    with pytest.raises(TypeError, match="inside the node that the handles were given to"):
        make([handle])


@pytest.mark.parametrize("make", ALL)
def test_names_with_an_underscore_are_refused(make) -> None:
    group = make(FAKES)

    for methods in (group, group.futures, group.aio):
        with pytest.raises(AttributeError, match="remote names have no underscore"):
            methods._secret  # noqa: B018


@pytest.mark.parametrize("make", ALL)
def test_groups_pickle(make, clients) -> None:
    group = pickle.loads(pickle.dumps(make(clients)))

    assert list(group) == clients
    assert len(group) == 3
    argument = lp.parts([1, 2, 3]) if make is lp.scatter else 1
    assert group(argument) == make(clients)(argument)
    for client in group:
        courier.close(client)


@pytest.mark.parametrize("make", ALL)
def test_options_of_a_group_are_those_of_its_clients(make) -> None:
    for group in (
        make(FAKES).with_options(timeout_s=3.0),
        lp.with_options(make(FAKES), timeout_s=3.0),
    ):
        assert [client.options for client in group] == [{"timeout_s": 3.0}] * 3
        assert repr(group).partition("(")[0] == repr(make(FAKES)).partition("(")[0]


@pytest.mark.parametrize(("make", "answer"), [*zip(GROUPS, ([0, 1, 2], 0, 0), strict=True)])
def test_a_method_of_a_group_can_be_submitted_and_awaited(make, answer, clients) -> None:
    group = make(clients)

    async def ask() -> Any:
        return await make(clients).aio.number_of(0)

    assert lp.submit(group.number_of, 0).result(20) == answer
    assert asyncio.run(ask()) == answer
    assert lp.submit(make(clients), 0).result(20) == make(clients)(0)


def test_a_broadcast_that_was_submitted_fails_when_all_are_done(clients) -> None:
    future = lp.submit(lp.broadcast(clients).fail_if, 1)

    with pytest.raises(LookupError, match="1 has none") as caught:
        future.result(20)
    assert caught.value.__notes__[0].startswith("1 of 3 clients of this broadcast failed:")


def test_groups_that_make_one_call_of_one_may_be_members(clients) -> None:
    pairs = [lp.round_robin(clients[:2]), lp.round_robin(clients[2:])]

    assert lp.broadcast(pairs).number() == [0, 2]
    assert lp.shard_by(pairs, key=by_first)(0) == (1, 0)
    for several in (lp.broadcast(clients), lp.scatter(clients)):
        with pytest.raises(TypeError, match="broadcast takes a list of clients"):
            lp.broadcast([several])


def test_a_list_of_handles_arrives_in_a_node_as_clients_to_make_a_group_of() -> None:
    class Worker:
        def __init__(self, number: int) -> None:
            self.number = number

        def times(self, x: int) -> int:
            return self.number * x

    def drive(workers: list[Any]) -> None:
        print(f"in all: {lp.broadcast(workers).times(10)}")
        print(f"the first: {lp.round_robin(workers).times(10)}")

    program = lp.Program("group")
    with program.group("worker"):
        workers = [program.add_node(lp.CourierNode(Worker, i)) for i in (1, 2, 3)]
    program.add_node(lp.PyNode(drive, workers), label="driver")

    running = lp.testing.run(program, launch_type="test_mt")

    assert "in all: [10, 20, 30]" in running.logs("driver")
    assert "the first: 10" in running.logs("driver")
