"""Pools over real servers of this process: as an executor, what they send, and mistakes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, as_completed
from functools import partial
from typing import Any

import numpy as np
import pytest

import launchpad as lp
from launchpad import courier
from launchpad.pools.function import DefinedFunctions
from tests.helpers import pool_nodes
from tests.helpers.local_pools import (
    DEADLINE_S,
    LocalWorkers,
    gates,
    open_gate,
    open_gates,
    pass_gate,
)
from tests.waiting import until


class Counted:
    """A function that knows how often it was unpickled."""

    n_made = 0

    def __call__(self, number: int) -> int:
        return number

    def __setstate__(self, state: object) -> None:
        type(self).n_made += 1

    def __getstate__(self) -> object:
        return {"not": "empty"}


# --- as an executor --------------------------------------------------------------------------------


def test_it_runs_what_the_script_defines_in_order_and_side_by_side(pool: lp.Pool) -> None:
    offset = 10

    async def answer() -> int:
        return 42

    mapped = pool.map(lambda a, b: a + b + offset, range(100), range(1, 200))
    futures = [pool.submit(pow, base, exp=2) for base in range(3)]
    gate = pool.submit(pass_gate, "a")
    pool.submit(open_gate, "a")
    coroutine = pool.submit(answer)

    assert list(mapped) == [2 * i + 11 for i in range(100)]
    assert {future.result() for future in as_completed(futures, DEADLINE_S)} == {0, 1, 4}
    assert gate.result(DEADLINE_S) == "a"
    assert coroutine.result(DEADLINE_S) == 42


def test_a_map_of_an_endless_iterable_reads_so_far_ahead_as_is_needed(pool: lp.Pool) -> None:
    read: list[int] = []

    def numbers() -> Iterator[int]:
        for number in itertools.count():
            read.append(number)
            yield number

    results = pool.map(pool_nodes.double, numbers(), buffersize=5)
    first = [next(results) for _ in range(20)]
    results.close()  # type: ignore[attr-defined]
    unlimited = pool.map(pool_nodes.double, itertools.count())

    assert first == [2 * i for i in range(20)]
    assert len(read) <= 25
    assert list(itertools.islice(unlimited, 1000))[-1] == 1998


def test_a_map_gives_all_results_before_the_first_error(pool: lp.Pool) -> None:
    results = pool.map(pool_nodes.fail_at_7, range(20), chunksize=5)

    assert list(itertools.islice(results, 7)) == list(range(7))
    with pytest.raises(KeyError, match="seven") as raised:
        next(results)
    assert isinstance(raised.value.__cause__, courier.RemoteTraceback)
    assert "in fail_at_7" in str(raised.value.__cause__)


def numbers_and_then_an_error() -> Iterator[int]:
    yield from range(7)
    raise KeyError("seven")


@pytest.mark.parametrize(
    ("function", "arguments", "kind", "words"),
    [
        (pool_nodes.lock_at_7, range(20), courier.RemoteError, r"returned a _thread\.lock"),
        (pool_nodes.unreadable_at_7, range(20), ValueError, "cannot be read"),
        (int, [*range(7), threading.Lock()], TypeError, "cannot pickle '_thread.lock'"),
        (int, [*range(7), pool_nodes.Unreadable()], ValueError, "cannot be read"),
        (int, numbers_and_then_an_error, KeyError, "seven"),
    ],
    ids=["a result", "a result here", "an argument", "an argument there", "the iterable"],
)
@pytest.mark.parametrize("chunksize", [None, 5, 20])
def test_a_map_gives_all_results_before_what_cannot_be_pickled_or_read(
    pool: lp.Pool,
    function: Callable[[Any], Any],
    arguments: Any,
    kind: type[Exception],
    words: str,
    chunksize: int | None,
) -> None:
    results = pool.map(
        function, arguments() if callable(arguments) else arguments, chunksize=chunksize
    )

    assert list(itertools.islice(results, 7)) == list(range(7))
    with pytest.raises(kind, match=words):
        next(results)


def test_a_map_whose_first_call_cannot_be_pickled_fails_in_its_line(pool: lp.Pool) -> None:
    with pytest.raises(TypeError, match=r"cannot pickle '_thread.lock'"):
        pool.map(int, [threading.Lock(), 1])


def test_arguments_are_those_of_the_moment_of_submit_and_results_those_of_the_return(
    pool: lp.Pool, workers: LocalWorkers
) -> None:
    array, rows = np.zeros(50_000), [0]
    gate = [pool.submit(pass_gate, name) for name in "ab"]
    until(lambda: all(future.running() for future in gate))

    def frames() -> Iterator[Any]:
        for number in range(10):
            array[:] = number
            yield array

    futures = [pool.submit(sum, rows), pool.submit(np.sum, array)]
    totals = pool.map(np.max, frames(), chunksize=2)
    rows.append(5)
    array[:] = 5
    open_gates()

    assert [future.result(DEADLINE_S) for future in futures] == [0, 0]
    assert list(totals) == list(range(10))
    with lp.pool(workers.clients[:1]) as one:
        assert [list(rows) for rows in one.map(pool_nodes.same_list, range(4), chunksize=4)] == [
            list(range(n)) for n in range(1, 5)
        ]
        arrays = list(one.map(pool_nodes.same_array, range(4), chunksize=4))
    assert [set(each) for each in arrays] == [{n} for n in range(4)]


def test_each_call_has_the_arguments_of_a_partial_for_its_own(pool: lp.Pool) -> None:
    function = partial(pool_nodes.appended, [0], array=np.zeros(2000))
    marked = lp.idempotent(partial(function, 7))

    assert list(pool.map(partial(pool_nodes.appended, [0]), range(3))) == [[0, 0], [0, 1], [0, 2]]
    futures = [pool.submit(function, n) for n in range(3)]
    assert [future.result(DEADLINE_S) for future in futures] == [[0, 0], [0, 1], [0, 2]]
    assert [pool.submit(marked).result(DEADLINE_S) for _ in range(2)] == [[0, 7]] * 2


def test_a_map_past_its_timeout_raises(pool: lp.Pool) -> None:
    with pytest.raises(TimeoutError):
        list(pool.map(pass_gate, "ab", timeout=0.05))

    open_gates()


def test_what_was_not_sent_can_be_cancelled(pool: lp.Pool) -> None:
    running = [pool.submit(pass_gate, name) for name in "ab"]
    until(lambda: all(future.running() for future in running))
    waiting = [pool.submit(pool_nodes.double, n) for n in range(3)]

    assert waiting[1].cancel()
    assert not running[0].cancel()
    pool.shutdown(wait=False, cancel_futures=True)
    open_gates()

    assert [future.result(DEADLINE_S) for future in running] == ["a", "b"]
    for future in waiting:
        with pytest.raises(CancelledError):
            future.result(DEADLINE_S)


def test_a_pool_that_is_shut_down_finishes_its_work_and_takes_no_more(pool: lp.Pool) -> None:
    future = pool.submit(pass_gate, "a")
    pool.shutdown(wait=False)
    gates["a"].set()
    pool.shutdown()

    assert future.result(0) == "a"
    with pytest.raises(RuntimeError, match="shut down"):
        pool.submit(pool_nodes.double, 1)
    with pytest.raises(RuntimeError, match="shut down"):
        pool.map(pool_nodes.double, [1])


# --- what goes over the wire -----------------------------------------------------------------------


def test_a_function_is_made_once_in_each_worker(pool: lp.Pool) -> None:
    Counted.n_made = 0
    function = Counted()

    results = [pool.submit(function, number) for number in range(50)]
    mapped = pool.map(function, range(50))

    assert [future.result(DEADLINE_S) for future in results] == list(mapped)
    assert 1 <= Counted.n_made <= 2


def test_a_closure_is_sent_as_it_is_now(pool: lp.Pool) -> None:
    seen = [1]

    def total() -> int:
        return sum(seen)

    first = pool.submit(total).result(DEADLINE_S)
    seen.append(2)

    assert (first, pool.submit(total).result(DEADLINE_S)) == (1, 3)


def test_a_function_that_was_forgotten_is_sent_again(pool: lp.Pool, workers: LocalWorkers) -> None:
    for _ in range(2):
        assert list(pool.map(pool_nodes.double, range(10))) == [2 * i for i in range(10)]
        for served in workers.served:
            served._functions = DefinedFunctions()


def test_of_jobs_that_share_a_frame_a_bad_one_fails_alone(workers: LocalWorkers) -> None:
    with lp.pool(workers.clients, idempotent=True) as pool:
        list(pool.map(type, range(100)))  # it is known to be quick
        good = [pool.submit(type, number) for number in range(20)]
        bad = pool.submit(type, threading.Lock())
        good += [pool.submit(type, number) for number in range(20)]

        assert {future.result(DEADLINE_S) for future in good} == {int}
        with pytest.raises(TypeError, match="cannot pickle"):
            bad.result(DEADLINE_S)


def test_a_result_that_cannot_be_pickled_is_named(pool: lp.Pool) -> None:
    with pytest.raises(courier.RemoteError, match=r"a _thread\.lock"):
        pool.submit(threading.Lock).result(DEADLINE_S)

    assert pool.submit(pool_nodes.double, 2).result(DEADLINE_S) == 4


# --- mistakes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda _: lp.pool([]), ValueError, "at least one worker"),
        (lambda _: lp.pool([lp.PoolNode().create_handle()]), TypeError, r"running\.clients"),
        (lambda _: lp.PoolNode(slots=0), lp.DefinitionError, "slots=0"),
        (lambda _: lp.PoolNode(slots=True), lp.DefinitionError, "slots=True"),
        (lambda _: lp.PoolNode(initializer=3), lp.DefinitionError, "initializer=3"),
        (lambda pool: pool.submit(3), TypeError, "runs functions"),
        (lambda pool: pool.map(int, "1", chunksize=0), ValueError, "chunksize is a whole number"),
    ],
)
def test_a_mistake_is_refused_where_it_is_made(
    pool: lp.Pool, make: Callable[[lp.Pool], object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        make(pool)
