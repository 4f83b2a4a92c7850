"""Handlers that block: the pool grows, and calls that depend on each other never deadlock."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from launchpad import courier
from launchpad.courier import call_deadlock, log
from launchpad.courier.client import watchdog
from launchpad.courier.server import thread_pool
from tests.waiting import until


@pytest.mark.every_transport
@pytest.mark.parametrize("use_futures", [False, True])
def test_nodes_call_each_other_30_deep(serve, connect, address, other_address, use_futures) -> None:
    """a → b → a → … thirty deep, each server with one thread."""
    clients: dict[str, courier.Client] = {}

    def down(other: str, n: int) -> int:
        if n == 0:
            return 0
        me = {"a": "b", "b": "a"}[other]
        if use_futures:
            return 1 + clients[other].futures.down(me, n - 1).result(20)
        return 1 + clients[other].down(me, n - 1)

    for name, place in [("a", address), ("b", other_address)]:
        serve(place, name=name, size=1, down=down)
        clients[name] = connect(place, call_timeout=20)

    assert clients["a"].down("b", 30) == 30
    assert clients["b"].futures.down("a", 30).result(20) == 30


@pytest.mark.parametrize("use_futures", [False, True])
def test_idle_clients_hold_no_threads_of_others(serve, connect, unix_address, use_futures) -> None:
    serve(unix_address, name="host", size=4, echo=lambda value: value)
    clients = [connect(unix_address) for _ in range(200)]

    for _ in range(2):
        if use_futures:
            futures = [client.futures.echo(i) for i, client in enumerate(clients)]
            answers = [future.result(20) for future in futures]
        else:
            answers = [client.echo(i) for i, client in enumerate(clients)]

        assert answers == list(range(200))
    until(lambda: _number_of_threads("host-") < 10)  # more may have run side by side: these retire


def _number_of_threads(prefix: str) -> int:
    return sum(thread.name.startswith(prefix) for thread in threading.enumerate())


def test_as_many_jobs_run_side_by_side_as_the_pool_has_threads(gate) -> None:
    woken = threading.Event()
    looks: list[float | None] = []

    def poll(limit_s: float | None) -> list[thread_pool.Job]:
        looks.append(limit_s)
        woken.wait(limit_s)
        woken.clear()
        return []

    pool = thread_pool.ThreadPool("pool", 2, poll, woken.set)
    pool._may_grow = lambda: False  # the jobs are blocked: it would
    pool.start_thread()
    entered: list[int] = []
    for i in range(5):
        pool.submit(thread_pool.FunctionJob(lambda i=i: entered.append(i) or gate.wait()))

    until(lambda: len(entered) >= 2)
    n_looks = len(looks)
    until(lambda: len(looks) > n_looks + 2)  # so often has the leader not begun another one
    n_entered = len(entered)
    gate.set()
    until(lambda: len(entered) == 5)
    pool.stop()

    assert n_entered == 2
    assert pool.join(20)


def count_growth(server: courier.Server) -> list[int]:
    """An entry for each time that the pool begins more than it would as a rule."""
    pool, grown = server._core.pool, []
    may_grow = pool._may_grow

    def count() -> bool:
        grows = may_grow()
        grown.extend([1] * grows)
        return grows

    pool._may_grow = count
    return grown


@pytest.mark.parametrize("is_computing", [False, True])
def test_sound_21_300_callers_that_wait_for_each_other_take_few_looks_at_the_pool(
    serve, connect, unix_address, is_computing
) -> None:
    """Each look takes some milliseconds. The callers connect then, too, and may keep the process busy."""
    n = 300
    barrier, over = threading.Barrier(n), threading.Event()
    grown = count_growth(serve(unix_address, meet=lambda: barrier.wait() >= 0))
    clients = [connect(unix_address, call_timeout=60) for _ in range(n)]

    def compute() -> None:
        while is_computing and not over.is_set():
            sum(range(1000))

    with ThreadPoolExecutor(n + 1) as callers:
        callers.submit(compute)
        met = list(callers.map(lambda client: client.meet(), clients))
        over.set()

    assert met == [True] * n
    assert len(grown) <= 30


def test_sound_21_beside_blocked_calls_as_many_run(serve, connect, unix_address, gate) -> None:
    entered = threading.Semaphore(0)
    server = serve(unix_address, size=4, wait=lambda: entered.release() or gate.wait(), echo=str)
    grown = count_growth(server)
    waiting = [connect(unix_address, call_timeout=60).futures.wait() for _ in range(40)]
    for _ in waiting:
        entered.acquire()

    grown.clear()
    others = [connect(unix_address, call_timeout=60) for _ in range(50)]
    found = [client.echo(i) for i, client in enumerate(others)]

    assert found == [str(i) for i in range(50)]
    assert len(grown) <= 2
    gate.set()
    assert all(future.result(60) for future in waiting)
    until(lambda: not server._core.pool._running.blocked)


def test_sound_29_deep_recursion_is_no_alarm(serve, connect, short_directory, monkeypatch) -> None:
    """It needs as many threads as calls that wait for each other, and then it is answered."""
    monkeypatch.setattr(thread_pool, "MANY_FOR_S", 60.0, raising=False)
    monkeypatch.setattr(watchdog, "DEADLOCK_AFTER_S", 60.0)
    texts: list[str] = []
    looked = threading.Event()
    monkeypatch.setattr(log, "warning", texts.append)
    monkeypatch.setattr(call_deadlock, "detect", lambda _: looked.set())
    clients: list[courier.Client] = []
    n = 2 * thread_pool.MANY_THREADS + 20

    def down(i: int, n: int) -> int:
        return 0 if n == 0 else 1 + clients[1 - i].down(1 - i, n - 1)

    for i in range(2):
        serve(f"unix:{short_directory}/{i}", size=1, down=down)
        clients.append(connect(f"unix:{short_directory}/{i}"))

    assert clients[0].down(0, n) == n
    assert texts == []
    assert not looked.is_set()
