"""Groups: many clients as one."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import launchpad as lp
from launchpad import courier
from launchpad.courier.client.partition import shard_of
from tests.courier.conftest import awaited, begin_source, in_background, printed_by


@pytest.fixture
def clients(serve, connect, short_directory) -> list[courier.Client[Any]]:
    """Clients of three servers, which know their numbers."""
    found = []
    barrier = threading.Barrier(3)
    for i in range(3):
        address = f"unix:{short_directory}/{i}"
        serve(
            address,
            name=f"server-{i}",
            meet=lambda: barrier.wait(20),
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
    """Answers without a server."""

    futures = None

    def __init__(self, number: int, **options: Any) -> None:
        self.number = number
        self.options = options

    def ask(self, *_: Any) -> int:
        return self.number

    def with_options(self, **changes: Any) -> FakeClient:
        return FakeClient(self.number, **changes)


FAKES: Any = [FakeClient(i) for i in range(3)]


def group_of_futures(*asks: Callable[[], Future[Any]]) -> Any:
    """A broadcast to clients whose `futures.ask()` does this."""
    return lp.broadcast(SimpleNamespace(futures=SimpleNamespace(ask=ask)) for ask in asks)


def done(result: object = None, error: Exception | None = None) -> Future[Any]:
    future: Future[Any] = Future()
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
    return future


# --- broadcast -----------------------------------------------------------------------------------


def test_a_broadcast_asks_all_side_by_side_and_answers_in_their_order(clients) -> None:
    group = lp.broadcast(clients)

    assert sorted(group.meet()) == [0, 1, 2]
    assert group.number() == [0, 1, 2]
    assert group.add(1, to=2) == [(0, 3), (1, 3), (2, 3)]
    assert group("x") == [(0, "x"), (1, "x"), (2, "x")]


def test_the_first_failure_of_a_broadcast_is_raised_and_lists_them_all(clients) -> None:
    group = lp.broadcast(clients)

    for call in (
        lambda: group.fail_if(2, 1),
        lambda: lp.submit(group.fail_if, 2, 1).result(20),
        lambda: asyncio.run(group.aio.fail_if(2, 1)),
    ):
        with pytest.raises(LookupError, match="1 has none") as caught:
            call()
        assert caught.value.__notes__ == [
            "2 of 3 clients of this broadcast failed:\n"
            f"  1: {clients[1]!r}: LookupError: 1 has none\n"
            f"  2: {clients[2]!r}: LookupError: 2 has none"
        ]


def test_a_broadcast_that_fails_has_waited_for_all() -> None:
    last: Future[Any] = Future()
    group = group_of_futures(lambda: done(error=ZeroDivisionError()), lambda: last)

    call = in_background(group.ask)
    with pytest.raises(TimeoutError):
        call.result(0.1)
    last.set_result(None)

    with pytest.raises(ZeroDivisionError):
        call.result(20)


def test_a_client_that_cannot_be_asked_does_not_lose_the_answers_of_the_others() -> None:
    def fail() -> Future[Any]:
        raise OSError("closed")

    first, closed, last = group_of_futures(lambda: done(0), fail, lambda: done(2)).futures.ask()

    assert (first.result(0), last.result(0)) == (0, 2)
    with pytest.raises(OSError, match="closed"):
        closed.result(0)


def test_a_broadcast_that_is_interrupted_as_it_begins_cancels_what_it_has_begun() -> None:
    begun: Future[Any] = Future()

    def interrupt() -> Future[Any]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        group_of_futures(lambda: begun, interrupt).ask()

    assert begun.cancelled()


# --- round_robin ---------------------------------------------------------------------------------


def test_round_robin_asks_one_after_the_other(clients) -> None:
    group = lp.round_robin(clients)

    assert [group.number() for _ in range(4)] == [0, 1, 2, 0]
    assert group.futures.number().result(20) == 1
    assert group("x") == (2, "x")


def test_round_robin_leaves_none_out_when_threads_share_it() -> None:
    group = lp.round_robin(FAKES)

    counts = [in_background(lambda: Counter(group.ask() for _ in range(300))) for _ in range(4)]

    asked = sum((count.result(20) for count in counts), Counter())
    assert asked == {0: 400, 1: 400, 2: 400}


# --- shard_by ------------------------------------------------------------------------------------


def test_a_sharded_call_goes_to_the_client_that_its_key_is_for(clients) -> None:
    group = lp.shard_by(clients, key=lambda x, *, to: x)

    assert [group.add(x, to=0) for x in range(4)] == [(0, 0), (1, 1), (2, 2), (0, 3)]
    assert group.futures.add(4, to=1).result(20) == (1, 5)


def test_keys_belong_to_the_same_shard_in_every_process() -> None:
    keys = ["ada", "Ω", b"ada", None, 2**70, -1, True, np.int32(5), ("a", (None, b"x"), 3)]
    source = f"""{begin_source()}
import numpy as np
from launchpad.courier.client.partition import shard_of
print([shard_of(key, 1000) for key in {keys!r}])
"""

    assert printed_by(source) == f"{[shard_of(key, 1000) for key in keys]}\n"
    assert shard_of("ada", 1000) == 369  # and in every version: stored data depend on it


def test_keys_are_spread_over_the_shards() -> None:
    shares = Counter(shard_of(f"user-{i}", 4) for i in range(4000))

    assert min(shares.values()) > 900


@pytest.mark.parametrize("key", [1.5, object(), ["a"], ("a", 2.0), {"a": 1}])
def test_a_key_that_may_differ_between_processes_is_refused(key: Any) -> None:
    group = lp.shard_by(FAKES, key=lambda it: it)

    with pytest.raises(TypeError, match="int, str, bytes, None or a tuple of these"):
        group.ask(key)
    with pytest.raises(TypeError, match="a function of a call's arguments as key, not"):
        lp.shard_by(FAKES, key=key)


# --- all of them ---------------------------------------------------------------------------------


def by_first(x: Any) -> Any:
    return x


GROUPS: Any = [lp.broadcast, lp.round_robin, lambda clients: lp.shard_by(clients, by_first)]
ALL: Any = [*GROUPS, lp.scatter, lambda clients: lp.sharded(clients, lp.HashPartition())]


@pytest.mark.parametrize("make", ALL)
def test_an_empty_group_and_one_of_handles_are_refused_with_the_next_step(make) -> None:
    handle = lp.Program("p").add_node(lp.CourierNode(dict), label="server")

    with pytest.raises(ValueError, match="at least one client"):
        make([])
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
    assert lp.submit(make(clients).number_of, 0).result(20) == answer
    assert asyncio.run(awaited(make(clients).aio.number_of(0))) == answer
    assert lp.submit(make(clients), 0).result(20) == make(clients)(0)


def test_groups_that_make_one_call_of_one_may_be_members(clients) -> None:
    pairs = [lp.round_robin(clients[:2]), lp.round_robin(clients[2:])]

    assert lp.broadcast(pairs).number() == [0, 2]
    assert lp.shard_by(pairs, key=by_first)(0) == (1, 0)
    for several in (lp.broadcast(clients), lp.scatter(clients)):
        with pytest.raises(TypeError, match="broadcast takes a list of clients"):
            lp.broadcast([several])
