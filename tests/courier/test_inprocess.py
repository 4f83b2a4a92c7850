"""Calls within a process: they run on the threads of their server, as everywhere else."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import pickle
import queue
import threading
import weakref
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from launchpad import courier
from tests.courier.conftest import (
    DEADLINE_S,
    begin_source,
    exit_code_of_child,
    in_background,
    printed_by,
)


def who() -> int:
    return threading.get_ident()


def test_a_method_never_runs_in_the_thread_that_calls_it(serve, connect, inproc_address) -> None:
    clients = [connect(inproc_address), connect(inproc_address, call_timeout=DEADLINE_S)]
    serve(inproc_address, who=who, who_else=lambda: (who(), clients[0].who()))

    threads = {client.who() for client in clients for _ in range(100)}
    threads |= {client.futures.who().result(DEADLINE_S) for client in clients for _ in range(100)}
    outer, inner = clients[0].who_else()

    assert threading.get_ident() not in {*threads, outer, inner}
    assert outer != inner


def test_a_method_finds_nothing_of_its_callers_thread(serve, connect, inproc_address) -> None:
    """Neither its context's variables, nor the exception that it handles, nor its event loop."""
    variable = contextvars.ContextVar("variable", default="default")

    async def fail() -> None:
        found = variable.get()
        variable.set("the server's")
        raise ValueError(found)

    serve(inproc_address, fail=lambda: asyncio.run(fail()))
    client = connect(inproc_address)

    async def call() -> str:
        variable.set("the caller's")
        try:
            raise KeyError("the caller's")
        except KeyError:
            with pytest.raises(ValueError, match="default") as caught:
                client.fail()
        assert variable.get() == "the caller's"
        return str(caught.value.__cause__)

    assert "the caller's" not in asyncio.run(call())


def test_the_next_server_there_has_its_own_handshake(serve, connect, inproc_address) -> None:
    client = connect(inproc_address)
    server = serve(inproc_address, name="old", token=b"one", who=who)
    with pytest.raises(courier.Refused):
        client.who()
    server.stop()

    server = serve(inproc_address, name="new", who=who)
    assert client.who()
    server.stop()
    serve(inproc_address, name="other", token=b"two", who=who)

    with pytest.raises(courier.Refused):
        client.who()


def test_a_future_of_a_callback_of_the_close_has_an_end(connect, inproc_address) -> None:
    client = connect(inproc_address)
    later: queue.Queue[Future[Any]] = queue.Queue()

    def call_again(_: object) -> None:
        later.put(client.with_options(timeout_s=0.1).futures.who())

    client.futures.who().add_done_callback(call_again)  # its server never comes

    courier.close(client)

    with pytest.raises(courier.CourierError):
        later.get(timeout=60).result(60)


def test_a_client_keeps_neither_a_stopped_server_nor_its_object(connect, inproc_address) -> None:
    class Table:
        def get(self) -> int:
            return who()

    table = Table()
    gone = weakref.ref(table)
    server = courier.Server("table", address=inproc_address)
    server.bind_object(table)
    server.start()
    client = connect(inproc_address)
    client.get()

    server.stop()
    del server, table
    gc.collect()

    assert gone() is None


def test_idempotent_calls_are_made_again_later(serve, connect, inproc_address, gate) -> None:
    entered = threading.Semaphore(0)
    first = serve(inproc_address, m=lambda: entered.release() or gate.wait())
    client = connect(inproc_address)
    again = client.with_options(idempotent=True)
    called = in_background(again.m)
    futures = [again.futures.m(), client.futures.m()]
    for _ in range(3):
        assert entered.acquire(timeout=10)

    first.stop(0)
    serve(inproc_address, m=lambda: "second")

    assert called.result(10) == futures[0].result(10) == "second"
    assert isinstance(futures[1].exception(10), courier.OutcomeUnknown)


def test_either_side_says_how_much_it_takes_at_once(serve, connect, inproc_address) -> None:
    serve(inproc_address, max_bytes=200_000, zeros=lambda n: np.zeros(n, np.uint8), length=len)
    client = connect(inproc_address, max_bytes=300_000)
    large = np.zeros(200_001, np.uint8)

    with pytest.raises(courier.MessageTooLarge, match="takes 200000 at once"):
        client.length(large)
    with pytest.raises(courier.MessageTooLarge, match="the caller takes 300000"):
        client.zeros(300_001)
    with pytest.raises(courier.MessageTooLarge):
        client.futures.length(large).result(DEADLINE_S)
    with pytest.raises(courier.MessageTooLarge):
        client.futures.zeros(300_001).result(DEADLINE_S)

    assert client.length(large[:100_000]) == 100_000
    assert len(client.zeros(200_000)) == 200_000


TRIES = """
def refusals(client):
    async def main():
        await client.aio.m(1)
    ways = (
        lambda: client.m(1), lambda: client.futures.m(1).result(), lambda: asyncio.run(main()),
        lambda: client.m(iter([1])), lambda: client.futures.m(iter([1])).result(),
        lambda: client.with_options(timeout_s=60).m(1), lambda: pickle.loads(pickle.dumps(client)).m(1),
    )
    for way in ways:
        try:
            way()
        except courier.NotSent as error:
            print(error, flush=True)
import asyncio, os, pickle
"""
N_TRIES = 7


def test_sound_26_a_client_elsewhere_is_told_so(serve, connect, inproc_address) -> None:
    serve(inproc_address, m=list)
    client = pickle.dumps(connect(inproc_address, name="counter-0"))

    lines = printed_by(f"{begin_source()}{TRIES}refusals(pickle.loads({client!r}))").splitlines()

    assert len(lines) == N_TRIES
    assert all(f"in which the client was made (pid {os.getpid()})" in line for line in lines)
    assert all("counter-0" in line for line in lines)
    assert all("Give the server a unix: address" in line for line in lines)


@pytest.mark.parametrize("server_is", ["up", "stopped", "not up yet"])
def test_sound_26_a_forked_child_is_told_so_until_it_serves_itself(python, server_is) -> None:
    source = f"""{begin_source()}{TRIES}
client = courier.Client("inproc:here")
pickle.loads(pickle.dumps(client))
server = courier.Server(address="inproc:here")
server.bind("m", lambda value: value)
if {server_is!r} != "not up yet":
    server.start()
    client.m(1), client.futures.m(1).result()
if {server_is!r} == "stopped":
    server.stop()
pid = os.fork()
if pid == 0:
    refusals(client)
    if {server_is!r} != "up":
        own = courier.Server(address="inproc:here")
        own.bind("m", lambda value: value)
        own.start()
        print(client.m(42), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
server.stop()
"""

    with python(source) as process:
        output, _ = process.communicate(timeout=DEADLINE_S)

    assert output.count(f"in which the client was made (pid {process.pid})") == N_TRIES
    assert output.endswith("42\n") == (server_is != "up")


def test_large_arrays_are_shared_and_still_each_sides_own(serve, connect, inproc_address) -> None:
    """As between processes of one host: neither side sees what the other one writes."""
    kept: list[Any] = []
    serve(inproc_address, keep=lambda array: kept.append(array) or array)
    client = connect(inproc_address)
    array = np.zeros(1 << 20, np.uint8)

    returned = client.keep(array)
    array[0] = 1
    returned[1] = 2
    kept[0][2] = 3

    assert (array[:3].tolist(), returned[:3].tolist(), kept[0][:3].tolist()) == (
        [1, 0, 0],
        [0, 2, 0],
        [0, 0, 3],
    )
    assert [each.shares_memory for each in client._channel.connections.shm_connections] == [True]


def sockets_here() -> int:
    names = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
    return sum(os.path.islink(name) and "socket" in os.readlink(name) for name in names)


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="counts what /proc shows")
def test_a_forked_child_has_neither_end_of_its_parents_connections(
    serve, connect, inproc_address
) -> None:
    before = sockets_here()
    serve(inproc_address, who=who)
    client = connect(inproc_address)
    client.who()
    client.futures.who().result(DEADLINE_S)
    assert sockets_here() >= before + 4

    assert exit_code_of_child(lambda: sockets_here() - before) == 0
    assert client.who()
