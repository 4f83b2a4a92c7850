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
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from launchpad import courier
from launchpad.courier import buffers, call_deadlock
from launchpad.courier.client import remote_server
from launchpad.courier.client.client import Client
from tests.courier.conftest import Connect, Serve, begin_source

REPOSITORY = Path(__file__).parent.parent.parent
DEADLINE_S = 20.0


@pytest.fixture
def here(short_directory: Path) -> str:
    """An in-process address."""
    return f"inproc:{short_directory}/s"


def who() -> int:
    return threading.get_ident()


# --- where a call runs -------------------------------------------------------------------------


def test_a_method_never_runs_in_the_thread_that_calls_it(
    serve: Serve, connect: Connect, here: str
) -> None:
    clients = [connect(here), connect(here, call_timeout=DEADLINE_S)]
    serve(here, who=who, who_else=lambda: (who(), clients[0].who()))

    threads = {client.who() for client in clients for _ in range(100)}
    threads |= {client.futures.who().result(DEADLINE_S) for client in clients for _ in range(100)}
    outer, inner = clients[0].who_else()

    assert threading.get_ident() not in {*threads, outer, inner}
    assert outer != inner


def test_a_call_made_while_serving_one_with_a_deadline_inherits_it(
    serve: Serve, connect: Connect, here: str, gate: threading.Event
) -> None:
    serve(f"{here}2", name="inner", hang=gate.wait)
    client = connect(f"{here}2")
    errors: list[BaseException] = []
    told = threading.Event()

    def call_inner() -> None:
        try:
            client.hang()
        except courier.DeadlineExceeded as error:
            errors.append(error)
        finally:
            told.set()

    serve(here, call_inner=call_inner)
    connect(here, call_timeout=0.5).futures.call_inner()
    assert told.wait(DEADLINE_S)

    assert "before the deadline of the call that it was made for" in str(errors[0])


def test_calls_that_wait_for_a_thread_are_not_overtaken(
    serve: Serve, connect: Connect, here: str, gate: threading.Event
) -> None:
    order: list[str] = []
    entered = threading.Event()
    server = serve(
        here,
        size=1,
        hang=lambda: entered.set() or gate.wait(),
        note=lambda text: order.append(text),
    )
    client = connect(here)
    client.note("first")
    server._core.pool._may_grow = lambda: False
    hangs = client.futures.hang()
    assert entered.wait(DEADLINE_S)
    queued = client.futures.note("queued")

    late = threading.Thread(target=client.note, args=("late",))
    late.start()
    gate.set()
    late.join(DEADLINE_S)

    assert queued.result(DEADLINE_S) is None
    assert hangs.result(DEADLINE_S)
    assert order == ["first", "queued", "late"]


def test_endless_recursion_in_a_method_is_the_callers_error_and_nothing_else(
    serve: Serve, connect: Connect, here: str
) -> None:
    def recurse() -> None:
        recurse()

    serve(here, recurse=recurse, who=who)
    client = connect(here)

    with pytest.raises(RecursionError):
        client.recurse()

    assert client.who()


# --- what a method finds where it runs ---------------------------------------------------------


def test_variables_of_the_callers_context_do_not_reach_the_method_nor_back(
    serve: Serve, connect: Connect, here: str
) -> None:
    variable = contextvars.ContextVar("variable", default="default")

    def swap() -> str:
        found = variable.get()
        variable.set("the server's")
        return found

    serve(here, swap=swap)
    client = connect(here)
    variable.set("the caller's")

    answers = {client.swap() for _ in range(3)}

    assert "the caller's" not in answers
    assert variable.get() == "the caller's"


def test_an_exception_that_the_caller_handles_is_no_context_of_the_methods_own(
    serve: Serve, connect: Connect, here: str
) -> None:
    def fail() -> None:
        raise ValueError("the method's")

    serve(here, fail=fail)
    client = connect(here)

    try:
        raise KeyError("the caller's")
    except KeyError:
        with pytest.raises(ValueError, match="the method's") as caught:
            client.fail()

    assert "the caller's" not in str(caught.value.__cause__)


def test_a_method_called_from_a_running_event_loop_may_run_one_itself(
    serve: Serve, connect: Connect, here: str
) -> None:
    async def double(value: int) -> int:
        return 2 * value

    serve(here, double=lambda value: asyncio.run(double(value)))
    client = connect(here)

    async def call() -> int:
        return int(client.double(2))

    assert asyncio.run(call()) == 4


def test_a_method_does_not_inherit_no_grad_from_its_caller(
    serve: Serve, connect: Connect, here: str
) -> None:
    torch = pytest.importorskip("torch")
    serve(here, is_grad_enabled=torch.is_grad_enabled)
    client = connect(here)

    with torch.no_grad():
        inside = client.is_grad_enabled()

    assert inside


def test_arguments_and_results_are_copies(serve: Serve, connect: Connect, here: str) -> None:
    kept: list[Any] = []

    def keep(array: Any, items: list[int]) -> list[Any]:
        kept[:] = [array, items]
        return [array, items]

    serve(here, keep=keep)
    client = connect(here)
    array, items = np.zeros(100_000), [1]

    returned_array, returned_items = client.keep(array, items)
    kept[0][:] = 1
    kept[1].append(2)
    returned_array[:1] = 3
    returned_items.append(4)

    assert (array[:2].tolist(), items) == ([0.0, 0.0], [1])
    assert (kept[0][0], kept[1]) == (1.0, [1, 2])
    assert (returned_array[:2].tolist(), returned_items) == ([3.0, 0.0], [1, 4])


# --- what strikes the caller -------------------------------------------------------------------


def call_in_main_thread(source: str) -> str:
    return f"""
import os, signal, sys, threading, time
sys.path.insert(0, {str(REPOSITORY)!r})
from launchpad import courier

steps = []
may_end = threading.Event()
def two_steps():
    steps.append("begun")
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    may_end.wait({DEADLINE_S})
    steps.append("ended")

server = courier.Server("server", address="inproc:here")
server.bind("two_steps", two_steps)
server.bind("who", threading.get_ident)
server.start()
client = courier.Client(server.address)
client.who()
{source}
courier.close(client)
server.stop()
print(steps, threading.main_thread().ident == threading.get_ident(), flush=True)
"""


def run_source(python: Any, source: str) -> str:
    with python(call_in_main_thread(source)) as process:
        output, _ = process.communicate(timeout=DEADLINE_S)
    return str(output)


def test_ctrl_c_interrupts_the_caller_and_the_method_runs_to_its_end(python: Any) -> None:
    source = """
try:
    client.two_steps()
except KeyboardInterrupt:
    steps.append("interrupted")
    may_end.set()
"""

    assert run_source(python, source) == "['begun', 'interrupted', 'ended'] True\n"


# --- stop --------------------------------------------------------------------------------------


def test_a_server_that_drains_takes_no_more_calls(
    serve: Serve, connect: Connect, here: str
) -> None:
    server = serve(here, who=who)
    client = connect(here, wait_for_ready=False)
    client.who()

    server.drain()

    with pytest.raises(courier.NotSent):
        client.who()
    assert courier.health(client) == "draining"


def test_the_next_server_at_the_address_gets_a_handshake_of_its_own(
    serve: Serve, connect: Connect, here: str
) -> None:
    client = connect(here)
    server = serve(here, name="old", token=b"one", who=who)
    with pytest.raises(courier.Refused):
        client.who()
    server.stop()

    server = serve(here, name="new", who=who)
    assert client.who()
    server.stop()
    serve(here, name="other", token=b"two", who=who)

    with pytest.raises(courier.Refused):
        client.who()


def test_a_client_with_other_options_shares_the_handshake(
    serve: Serve, connect: Connect, here: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(here, who=who)
    client = connect(here)
    hellos: list[object] = []
    check = remote_server.RemoteServer.check_server_hello

    def counted(peer: remote_server.RemoteServer, hello: Any) -> None:
        hellos.append(hello)
        check(peer, hello)

    monkeypatch.setattr(remote_server.RemoteServer, "check_server_hello", counted)

    for _ in range(5):
        client.with_options(timeout_s=10.0).who()

    assert len(hellos) == 1


def test_a_future_of_a_callback_of_the_close_has_an_end(connect: Connect, here: str) -> None:
    client = connect(here)
    later: queue.Queue[Future[Any]] = queue.Queue()

    def call_again(_: object) -> None:
        later.put(client.with_options(timeout_s=0.1).futures.who())

    client.futures.who().add_done_callback(call_again)  # its server never comes

    courier.close(client)

    with pytest.raises(courier.CourierError):
        later.get(timeout=60).result(60)


def test_a_client_keeps_neither_a_stopped_server_nor_its_object(
    serve: Serve, connect: Connect, here: str
) -> None:
    class Table:
        def get(self) -> int:
            return who()

    table = Table()
    gone = weakref.ref(table)
    server = courier.Server("table", address=here)
    server.bind_object(table)
    server.start()
    client = connect(here)
    client.get()

    server.stop()
    del server, table
    gc.collect()

    assert gone() is None


# --- what is counted, and the limits -----------------------------------------------------------


def test_both_ends_count_calls_and_futures_alike(serve: Serve, connect: Connect, here: str) -> None:
    def echo(value: Any) -> Any:
        if value is None:
            raise ValueError("none")
        return value

    server = serve(here, echo=echo)
    client: Client[Any] = connect(here)
    client.echo(0)

    def call_three_times() -> None:
        client.echo(1)
        client.echo(np.ones(1000))
        with pytest.raises(ValueError, match="none"):
            client.echo(None)

    call_three_times()
    call_three_times()
    client.futures.echo(np.ones(1000)).result(DEADLINE_S)
    with pytest.raises(ValueError, match="none"):
        client.futures.echo(None).result(DEADLINE_S)

    ours = client._channel.counts[b"echo"]
    assert server._core is not None
    (edge,) = server._core.counts.values()
    theirs = edge[b"echo"]
    for counts in (ours, theirs):
        assert (counts.started, sum(counts.buckets), counts.errors) == (9, 9, 3)
        assert counts.total_s > 0
    assert (ours.bytes_out, ours.bytes_in) == (theirs.bytes_in, theirs.bytes_out)
    assert ours.bytes_out > 3 * 8000


def test_either_side_says_how_much_it_takes_at_once(here: str) -> None:
    server = courier.Server("small", address=here, max_bytes=200_000)
    server.bind("zeros", lambda n: np.zeros(n, np.uint8))
    server.bind("length", len)
    server.start()
    client: Client[Any] = Client(here, max_bytes=300_000)
    client.length("")

    with pytest.raises(courier.MessageTooLarge, match="takes 200000 at once"):
        client.length(np.zeros(200_001, np.uint8))
    with pytest.raises(courier.MessageTooLarge, match="the caller takes 300000"):
        client.zeros(300_001)
    with pytest.raises(courier.MessageTooLarge):
        client.futures.length(np.zeros(200_001, np.uint8)).result(DEADLINE_S)
    with pytest.raises(courier.MessageTooLarge):
        client.futures.zeros(300_001).result(DEADLINE_S)

    assert client.length(np.zeros(100_000, np.uint8)) == 100_000
    assert len(client.zeros(200_000)) == 200_000
    courier.close(client)
    server.stop()


def test_a_large_first_call_is_measured_by_the_server_that_it_finds(here: str) -> None:
    server = courier.Server("small", address=here, max_bytes=200_000)
    server.bind("length", len)
    server.start()

    with Client(here) as client, pytest.raises(courier.MessageTooLarge):
        client.length(np.zeros(200_001, np.uint8))

    server.stop()


# --- memory ------------------------------------------------------------------------------------


def test_memory_of_large_buffers_is_used_again_when_their_arrays_have_died() -> None:
    buffers._idle.clear()
    first = np.frombuffer(buffers.allocate(5_000_000), np.uint8)
    address = first.ctypes.data

    part = first[10:20]
    del first
    other = np.frombuffer(buffers.allocate(5_000_000), np.uint8)
    was_shared = other.ctypes.data == address
    del part, other
    gc.collect()
    again = [np.frombuffer(buffers.allocate(5_000_000), np.uint8) for _ in range(2)]

    assert not was_shared
    assert address in [array.ctypes.data for array in again]
    buffers._idle.clear()


def test_idle_memory_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    buffers._idle.clear()
    monkeypatch.setattr(buffers, "_MAX_IDLE", 10 << 20)

    held = [buffers.allocate(4 << 20) for _ in range(10)]
    del held
    small = [buffers.allocate(300_000) for _ in range(100)]
    del small

    assert sum(map(len, buffers._idle)) <= 10 << 20
    assert len(buffers._idle) <= buffers._MAX_BLOCKS
    buffers._idle.clear()


def test_a_small_idle_block_is_no_use_for_a_large_buffer_nor_a_large_one_for_a_small() -> None:
    buffers._idle.clear()
    del (held := [buffers.allocate(8 << 20)])[:]

    small, large = buffers.allocate(300_000), buffers.allocate(9 << 20)

    assert (small.nbytes, large.nbytes) == (300_000, 9 << 20)
    assert held == []
    assert [len(block) for block in buffers._idle] == [8 << 20]
    buffers._idle.clear()


# --- elsewhere ---------------------------------------------------------------------------------


def test_a_cycle_of_calls_in_one_process_is_found_and_named(
    serve: Serve,
    connect: Connect,
    here: str,
    gate: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """a.f → b.g → c.h → a.f."""
    texts: list[str] = []
    said = threading.Event()
    monkeypatch.setattr(remote_server, "DEADLOCK_AFTER_S", 0.0)
    monkeypatch.setattr(call_deadlock, "warn", lambda text: (texts.append(text), said.set()))
    clients = {name: connect(here + name) for name in "abc"}
    calls: list[int] = []

    def f() -> None:
        calls.append(who())
        if len(calls) == 1:
            clients["b"].g()
        else:
            gate.wait()

    serve(here + "b", name="b", g=clients["c"].h)
    serve(here + "c", name="c", h=clients["a"].f)
    serve(here + "a", name="a", f=f)

    future = clients["a"].futures.f()
    assert said.wait(DEADLINE_S)
    gate.set()
    future.result(DEADLINE_S)

    cycle = "a.f → b.g → c.h"
    assert any(cycle in f"{text} → {text}" or "c.h → a.f → b.g" in text for text in texts), texts


def test_a_forked_child_is_told_that_the_server_is_not_there(python: Any) -> None:
    source = """
pid = os.fork()
if pid == 0:
    try:
        client.who()
    except courier.NotSent as error:
        steps.append("unix: address" in str(error))
    os.write(1, repr(steps).encode())
    os._exit(0)
os.waitpid(pid, 0)
"""

    assert run_source(python, source) == "[True][] True\n"


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
import asyncio, os, pickle, sys
from launchpad import courier
"""
N_TRIES = 7


def test_sound_26_a_client_in_another_process_is_told_at_once_where_its_server_is(
    serve: Serve, connect: Connect, python: Any, here: str
) -> None:
    serve(here, m=list)
    client = connect(here, name="counter-0")
    source = f"{begin_source()}{TRIES}refusals(pickle.load(sys.stdin.buffer))"

    with python(source) as process:
        assert process.stdin is not None
        process.stdin.buffer.write(pickle.dumps(client))
        output, _ = process.communicate(timeout=DEADLINE_S)

    lines = output.splitlines()
    assert len(lines) == N_TRIES
    assert all(f"in which the client was made (pid {os.getpid()})" in line for line in lines)
    assert all("counter-0" in line for line in lines)


@pytest.mark.parametrize("server_is", ["up", "stopped", "not up yet"])
def test_sound_26_a_client_that_a_forked_child_keeps_is_told_at_once_where_its_server_is(
    python: Any, server_is: str
) -> None:
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
    os._exit(0)
os.waitpid(pid, 0)
server.stop()
"""

    with python(source) as process:
        output, _ = process.communicate(timeout=DEADLINE_S)

    assert output.count(f"in which the client was made (pid {process.pid})") == N_TRIES


def test_sound_26_a_child_that_serves_at_the_address_itself_is_called(python: Any) -> None:
    source = f"""{begin_source()}
import os
client = courier.Client("inproc:here")
pid = os.fork()
if pid == 0:
    server = courier.Server(address="inproc:here")
    server.bind("m", lambda value: value)
    server.start()
    print(client.m(41) + 1, flush=True)
    os._exit(0)
os.waitpid(pid, 0)
"""

    with python(source) as process:
        output, _ = process.communicate(timeout=DEADLINE_S)

    assert output == "42\n"


def test_an_idempotent_call_that_is_given_up_is_made_again_when_the_next_server_is_up() -> None:
    address, entered, never = "inproc:given-up", threading.Semaphore(0), threading.Event()

    def hang() -> None:
        entered.release()
        never.wait()

    first = courier.Server(address=address)
    first.bind("m", hang)
    first.start()
    client: Any = courier.Client(address)
    again = client.with_options(idempotent=True)
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(again.m()))
    thread.start()
    futures = [again.futures.m(), client.futures.m()]
    for _ in range(3):
        assert entered.acquire(timeout=10)

    first.stop(0)
    second = courier.Server(address=address)
    second.bind("m", lambda: "second")
    second.start()

    assert futures[0].result(10) == "second"
    assert isinstance(futures[1].exception(10), courier.OutcomeUnknown)
    thread.join(10)
    assert answers == ["second"]
    never.set()
    courier.close(client)
    second.stop()
