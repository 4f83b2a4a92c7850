"""Handlers that block: the pool grows, and calls that depend on each other never deadlock."""

from __future__ import annotations

import threading

import pytest

from launchpad import courier


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
