"""Handlers that block: the pool grows, and calls that depend on each other never deadlock."""

from __future__ import annotations

import threading

import pytest

from launchpad import courier
from launchpad.courier import call_deadlock
from launchpad.courier.client import remote_server
from launchpad.courier.server import thread_pool
from tests.waiting import until


@pytest.mark.every_transport
@pytest.mark.parametrize("use_futures", [False, True])
def test_nodes_that_call_each_other_do_not_deadlock(
    serve, connect, address, other_address, use_futures
) -> None:
    """a → b → a → … thirty deep, each server with one thread."""
    clients: dict[str, courier.Client] = {}

    def make(me: str, other: str):
        def down(n: int) -> int:
            if n == 0:
                return 0
            call = clients[other].futures.down if use_futures else clients[other].down
            below = call(n - 1)
            return 1 + (below.result(20) if use_futures else below)

        return down

    for me, other, place in [("a", "b", address), ("b", "a", other_address)]:
        serve(place, name=me, size=1, down=make(me, other))
        clients[me] = connect(place, call_timeout=20)

    assert clients["a"].down(30) == 30
    assert clients["b"].futures.down(30).result(20) == 30


def test_more_callers_than_threads_all_meet(serve, connect, address) -> None:
    barrier = threading.Barrier(40)
    serve(address, size=2, meet=lambda: barrier.wait(20) >= 0)
    client = connect(address, call_timeout=20)
    met: list[bool] = []

    threads = [threading.Thread(target=lambda: met.append(client.meet())) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert met == [True] * 40


@pytest.mark.every_transport
def test_a_method_may_call_its_own_server(serve, connect, address) -> None:
    client = connect(address, call_timeout=20)
    serve(address, size=1, outer=lambda: client.inner() + 1, inner=lambda: 1)

    assert client.outer() == 2
    assert client.futures.outer().result(20) == 2


def test_many_idle_clients_do_not_hold_threads(serve, connect, socket_address) -> None:
    serve(socket_address, name="host", echo=lambda value: value)
    clients = [connect(socket_address) for _ in range(200)]

    answers = [client.echo(i) for i, client in enumerate(clients)]
    again = [client.echo(i) for i, client in enumerate(clients)]

    assert answers == again == list(range(200))
    assert sum(t.name.startswith("host-") for t in threading.enumerate()) < 40


def test_side_by_side_never_much_more_than_the_pool_size_runs(serve, connect, address) -> None:
    """Methods that do not block for long share the size; nothing grows because of them."""
    lock = threading.Lock()
    running = most = 0

    def m() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        sum(range(2000))
        with lock:
            running -= 1

    serve(address, name="small", size=2, m=m)
    client = connect(address)

    threads = [threading.Thread(target=lambda: [client.m() for _ in range(30)]) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert most <= 12


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
def test_sound_21_three_hundred_callers_that_wait_for_each_other_take_few_looks_at_the_pool(
    serve, connect, unix_address, is_computing
) -> None:
    """Each look takes some milliseconds. The callers connect then, too, and may keep the process busy."""
    n = 300
    barrier, over = threading.Barrier(n), threading.Event()
    grown = count_growth(serve(unix_address, meet=lambda: barrier.wait() >= 0))
    clients = [connect(unix_address, call_timeout=60) for _ in range(n)]
    met: list[bool] = []

    def compute() -> None:
        while is_computing and not over.is_set():
            sum(range(1000))

    computing = threading.Thread(target=compute)
    computing.start()
    threads = [threading.Thread(target=lambda c=c: met.append(c.meet())) for c in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    over.set()
    computing.join()

    assert met == [True] * n
    assert len(grown) <= 30


def test_sound_21_beside_those_that_are_blocked_as_many_run_as_otherwise(
    serve, connect, unix_address, gate
) -> None:
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
    until(lambda: not server._core.pool._blocked)


def test_sound_29_a_deep_recursion_is_no_alarm(
    serve, connect, short_directory, monkeypatch
) -> None:
    """It needs as many threads as calls that wait for each other, and then it is answered."""
    monkeypatch.setattr(thread_pool, "MANY_FOR_S", 60.0, raising=False)
    monkeypatch.setattr(remote_server, "DEADLOCK_AFTER_S", 60.0)
    texts: list[str] = []
    looked = threading.Event()
    monkeypatch.setattr(call_deadlock, "warn", texts.append)
    monkeypatch.setattr(call_deadlock, "detect", lambda _: looked.set())
    clients: list[courier.Client] = []

    def down(i: int, n: int) -> int:
        return 0 if n == 0 else 1 + clients[1 - i].down(1 - i, n - 1)

    for i in range(2):
        serve(f"unix:{short_directory}/{i}", size=1, down=down)
        clients.append(connect(f"unix:{short_directory}/{i}"))

    assert (
        clients[0].down(0, 2 * thread_pool.MANY_THREADS + 20) == 2 * thread_pool.MANY_THREADS + 20
    )
    assert texts == []
    assert not looked.is_set()
