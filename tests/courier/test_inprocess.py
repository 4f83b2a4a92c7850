"""Calls within a process: run where they are made when that is safe, and on the server's threads if not."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from launchpad import courier
from launchpad.courier.clients import patience, rings
from launchpad.courier.clients.client import Client
from launchpad.courier.local import pace, visit
from launchpad.courier.values import memory
from tests.courier.conftest import Connect, Serve

REPOSITORY = Path(__file__).parent.parent.parent
DEADLINE_S = 20.0


@pytest.fixture(autouse=True)
def no_library_that_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests may have loaded them, and then no call visits a server."""
    for library in ("jax", "tensorflow"):
        monkeypatch.delitem(sys.modules, library, raising=False)


@pytest.fixture
def here(short_directory: Path) -> str:
    """An in-process address."""
    return f"inproc:{short_directory}/s"


@pytest.fixture(autouse=True)
def nobody_guards_the_main_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would not visit: a time limit for tests is a signal handler that may raise at any moment."""
    monkeypatch.setattr(visit.this_thread(), "guard", None)


def who() -> int:
    return threading.get_ident()


def make_quick(method: Callable[[], Any]) -> None:
    """Calls a method until it is known to be quick, however busy the machine is."""
    deadline = time.monotonic() + DEADLINE_S
    while method() != threading.get_ident():
        assert time.monotonic() < deadline


def trust(server: courier.Server, *methods: str) -> None:
    """Makes methods known to be quick, whether they are or not, and however busy the machine is."""
    assert server._house is not None
    paces = server._house.paces
    paces.quick.update(name.encode() for name in methods)
    paces.distrust = lambda method, took_s: None  # type: ignore[method-assign]


def in_thread(function: Callable[[], Any]) -> Any:
    """What a function returns in a thread of its own."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join(DEADLINE_S)
    return results[0]


# --- where a call runs -------------------------------------------------------------------------


def test_a_method_runs_on_threads_of_its_server_until_it_is_known_to_be_quick(
    serve: Serve, connect: Connect, here: str
) -> None:
    serve(here, who=who)
    client = connect(here)

    first = [client.who() for _ in range(pace.FIRST_RUNS)]
    make_quick(client.who)

    assert threading.get_ident() not in first


def test_a_quick_method_runs_where_it_is_called_in_every_thread(
    serve: Serve, connect: Connect, here: str
) -> None:
    server = serve(here, who=who)
    client = connect(here)
    client.who()
    trust(server, "who")

    assert client.who() == threading.get_ident()
    assert in_thread(lambda: client.who() == threading.get_ident())


def test_a_method_that_took_long_goes_back_to_the_threads_of_its_server(
    serve: Serve, connect: Connect, here: str
) -> None:
    server = serve(here, nap=lambda s: time.sleep(s) or who())
    client = connect(here)
    client.nap(0)
    server._house.paces.quick.add(b"nap")

    during = client.nap(2 * pace.QUICK_S)
    after = client.nap(0)

    assert during == threading.get_ident()
    assert after != threading.get_ident()


def test_a_slow_run_counts_for_a_thousand_others_and_one_that_blocked_for_good() -> None:
    paces = pace.Paces()

    def runs_until_quick() -> int:
        n = 0
        while b"m" not in paces.quick:
            paces.note(b"m", 0.0)
            n += 1
        return n

    fresh = runs_until_quick()
    paces.distrust(b"m", 2 * pace.QUICK_S)
    after_slow = runs_until_quick()
    paces.distrust(b"m", 2 * pace.BLOCKED_S)
    paces.distrust(b"m", 2 * pace.QUICK_S)

    assert (fresh, after_slow) == (pace.FIRST_RUNS, pace.RUNS_AFTER_SLOW)
    assert runs_until_quick() == pace.RUNS_AFTER_BLOCKED


def test_the_record_does_not_grow_with_names_that_a_client_makes_up() -> None:
    paces = pace.Paces()

    for i in range(10_000):
        paces.note(b"name-%d" % i, 0.0)

    assert len(paces._left) + len(paces.quick) <= 1000


def test_a_call_with_a_deadline_never_runs_in_its_callers_thread(
    serve: Serve, connect: Connect, here: str, gate: threading.Event
) -> None:
    server = serve(here, hang=gate.wait, who=who)
    client = connect(here)
    client.who()
    trust(server, "hang", "who")
    hurried = client.with_options(timeout_s=0.05)

    assert hurried.with_options(timeout_s=DEADLINE_S).who() != threading.get_ident()
    with pytest.raises(courier.DeadlineExceeded):
        hurried.hang()


def test_a_call_made_while_serving_one_with_a_deadline_inherits_it(
    serve: Serve, connect: Connect, here: str, gate: threading.Event
) -> None:
    inner = serve(f"{here}2", name="inner", hang=gate.wait)
    trust(inner, "hang")
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
    connect(here, call_timeout=0.1).futures.call_inner()
    assert told.wait(DEADLINE_S)

    assert "before the deadline of the call that it was made for" in str(errors[0])


def test_a_future_never_runs_in_the_thread_that_submits_it(
    serve: Serve, connect: Connect, here: str, gate: threading.Event
) -> None:
    server = serve(here, hang=gate.wait, who=who)
    client = connect(here)
    client.who()
    trust(server, "hang", "who")

    hangs = client.futures.hang()

    assert client.futures.who().result(DEADLINE_S) != threading.get_ident()
    assert not hangs.done()


def test_coroutines_run_on_the_loop_even_when_a_quick_method_has_become_one(
    serve: Serve, connect: Connect, here: str
) -> None:
    async def later() -> int:
        await asyncio.sleep(0)
        return who()

    server = serve(here, who=who)
    client = connect(here)
    client.who()
    trust(server, "who")
    server.bind("who", later)

    answers = {client.who() for _ in range(10)}

    assert len(answers) == 1
    assert threading.get_ident() not in answers


def test_no_more_calls_run_side_by_side_than_the_server_has_threads(
    serve: Serve, connect: Connect, here: str, gate: threading.Event
) -> None:
    entered = threading.Semaphore(0)
    server = serve(here, size=2, hang=lambda: entered.release() or gate.wait(), who=who)
    client = connect(here)
    client.who()
    trust(server, "hang", "who")
    server._house.pool._may_grow = lambda: False  # so that those that block do count
    visitors = [threading.Thread(target=client.hang) for _ in range(2)]
    for thread in visitors:
        thread.start()
    for _ in visitors:
        assert entered.acquire(timeout=DEADLINE_S)

    waiting = client.futures.who()

    assert not waiting.done()
    gate.set()
    assert waiting.result(DEADLINE_S)
    for thread in visitors:
        thread.join(DEADLINE_S)


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
    trust(server, "note")
    server._house.pool._may_grow = lambda: False
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


def test_visits_within_visits_end_in_a_thread_of_the_server(
    serve: Serve, connect: Connect, here: str
) -> None:
    client = connect(here)
    threads: list[int] = []

    def down(n: int) -> int:
        threads.append(threading.get_ident())
        return 0 if n == 0 else 1 + client.down(n - 1)

    server = serve(here, down=down)
    client.down(0)
    trust(server, "down")
    threads.clear()

    assert client.down(10) == 10

    mine = threading.get_ident()
    assert [thread == mine for thread in threads[: visit.MAX_DEPTH + 1]] == [
        *[True] * visit.MAX_DEPTH,
        False,
    ]


def test_endless_recursion_in_a_visit_is_the_callers_error_and_nothing_else(
    serve: Serve, connect: Connect, here: str
) -> None:
    def recurse() -> None:
        recurse()

    server = serve(here, recurse=recurse, who=who)
    client = connect(here)
    client.who()
    trust(server, "recurse", "who")

    with pytest.raises(RecursionError):
        client.recurse()

    assert client.who() == threading.get_ident()
    assert visit.this_thread().depth == 0


# --- what a method finds where it runs ---------------------------------------------------------


def test_variables_of_the_callers_context_do_not_reach_the_method_nor_back(
    serve: Serve, connect: Connect, here: str
) -> None:
    variable = contextvars.ContextVar("variable", default="nobody's")

    def swap() -> tuple[str, int]:
        found = variable.get()
        variable.set("the server's")
        return found, who()

    server = serve(here, swap=swap)
    client = connect(here)
    client.swap()
    trust(server, "swap")
    variable.set("the caller's")

    answers = [client.swap() for _ in range(3)]

    assert answers == [("nobody's", threading.get_ident())] * 3
    assert variable.get() == "the caller's"


def test_an_exception_that_the_caller_handles_is_no_context_of_the_methods_own(
    serve: Serve, connect: Connect, here: str
) -> None:
    def fail() -> None:
        raise ValueError("the method's")

    server = serve(here, fail=fail, who=who)
    client = connect(here)
    client.who()
    trust(server, "fail", "who")

    try:
        raise KeyError("the caller's")
    except KeyError:
        thread = client.who()
        with pytest.raises(ValueError, match="the method's") as caught:
            client.fail()

    assert thread != threading.get_ident()
    assert "the caller's" not in str(caught.value.__cause__)


def test_a_method_called_from_a_running_event_loop_may_run_one_itself(
    serve: Serve, connect: Connect, here: str
) -> None:
    async def double(value: int) -> int:
        return 2 * value

    server = serve(here, double=lambda value: asyncio.run(double(value)))
    client = connect(here)
    client.double(1)
    trust(server, "double")

    async def call() -> int:
        return int(client.double(2))

    assert asyncio.run(call()) == 4


@pytest.mark.parametrize("library", ["jax", "tensorflow", "torch"])
def test_where_a_library_with_state_in_threads_cannot_be_asked_no_call_visits(
    serve: Serve, connect: Connect, here: str, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    server = serve(here, who=who)
    client = connect(here)
    client.who()
    trust(server, "who")

    before = client.who()
    monkeypatch.setitem(sys.modules, library, type(sys)(library))

    assert before == threading.get_ident()
    assert client.who() != threading.get_ident()


def test_a_method_does_not_inherit_no_grad_from_its_caller(
    serve: Serve, connect: Connect, here: str
) -> None:
    torch = pytest.importorskip("torch")
    server = serve(here, mode=lambda: (torch.is_grad_enabled(), who()))
    client = connect(here)
    client.mode()
    trust(server, "mode")

    outside = client.mode()
    with torch.no_grad():
        inside, _ = client.mode()

    assert outside == (True, threading.get_ident())
    assert inside


def test_arguments_and_results_of_a_visit_are_copies(
    serve: Serve, connect: Connect, here: str
) -> None:
    kept: list[Any] = []

    def keep(array: Any, items: list[int]) -> list[Any]:
        kept[:] = [array, items]
        return [array, items, who()]

    server = serve(here, keep=keep)
    client = connect(here)
    array, items = np.zeros(100_000), [1]
    client.keep(array, items)
    trust(server, "keep")

    returned_array, returned_items, thread = client.keep(array, items)
    kept[0][:] = 1
    kept[1].append(2)
    returned_array[:1] = 3
    returned_items.append(4)

    assert thread == threading.get_ident()
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
def two_steps(seconds):
    steps.append("begun")
    os.kill(os.getpid(), signal.SIGINT)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline: pass
    steps.append("ended")

server = courier.Server("server", address="inproc:here")
server.bind("two_steps", two_steps)
server.bind("who", threading.get_ident)
server.start()
client = courier.Client(server.address)
client.who()
def trust(*names):
    server._house.paces.quick.update(name.encode() for name in names)
    server._house.paces.distrust = lambda method, took_s: None
trust("two_steps", "who")
{source}
courier.close(client)
server.stop()
print(steps, threading.main_thread().ident == threading.get_ident(), flush=True)
"""


def run_source(python: Any, source: str) -> str:
    with python(call_in_main_thread(source)) as process:
        output, _ = process.communicate(timeout=DEADLINE_S)
    return str(output)


def test_ctrl_c_waits_until_a_visit_of_the_main_thread_has_ended(python: Any) -> None:
    source = """
try:
    client.two_steps(0.01)
except KeyboardInterrupt:
    steps.append("interrupted")
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
"""

    assert run_source(python, source) == "['begun', 'ended', 'interrupted'] True\n"


def test_ctrl_c_interrupts_a_visit_that_does_not_end(python: Any) -> None:
    source = """
threading.Timer(0.7, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    client.two_steps(60)
except KeyboardInterrupt:
    steps.append("interrupted")
"""

    assert run_source(python, source) == "['begun', 'interrupted'] True\n"


def test_the_main_thread_does_not_visit_where_other_handlers_may_raise(python: Any) -> None:
    source = """
assert client.who() == threading.get_ident()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
assert client.who() != threading.get_ident()
signal.signal(signal.SIGTERM, signal.SIG_DFL)
assert client.who() == threading.get_ident()
signal.signal(signal.SIGINT, lambda *_: None)
assert client.who() != threading.get_ident()
signal.signal(signal.SIGINT, signal.SIG_IGN)
assert client.who() == threading.get_ident()
assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
"""

    assert run_source(python, source) == "[] True\n"


def test_a_guard_hears_of_the_outermost_visit_only(
    serve: Serve, connect: Connect, here: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Shield:
        used = 0

        def shield(self, fn: Any, *args: Any) -> Any:
            self.used += 1
            return fn(*args)

    client = connect(here)
    server = serve(here, outer=lambda: client.inner(), inner=who)
    client.inner()
    trust(server, "outer", "inner")
    guard = Shield()
    monkeypatch.setattr(visit.this_thread(), "guard", guard)

    assert client.outer() == threading.get_ident()

    assert guard.used == 1


def test_a_guard_that_cannot_help_sends_the_call_to_the_server(
    serve: Serve, connect: Connect, here: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Nothing:
        def shield(self, fn: Any, *args: Any) -> Any:
            return None

    server = serve(here, who=who)
    client = connect(here)
    client.who()
    trust(server, "who")
    monkeypatch.setattr(visit.this_thread(), "guard", Nothing())

    assert client.who() != threading.get_ident()


# --- stop --------------------------------------------------------------------------------------


def test_a_stop_waits_for_visits_and_their_callers_get_their_results(
    serve: Serve, connect: Connect, here: str, gate: threading.Event
) -> None:
    entered = threading.Event()
    server = serve(here, m=lambda: entered.set() or (gate.wait() and "finished"), who=who)
    client = connect(here)
    client.who()
    trust(server, "m")
    answers: list[str] = []
    caller = threading.Thread(target=lambda: answers.append(client.m()))
    caller.start()
    assert entered.wait(DEADLINE_S)

    stopper = threading.Thread(target=server.stop, args=(DEADLINE_S,))
    stopper.start()
    stopper.join(0.05)
    was_stopping = stopper.is_alive()
    gate.set()
    stopper.join(DEADLINE_S)
    caller.join(DEADLINE_S)

    assert was_stopping
    assert answers == ["finished"]


def test_a_visit_that_outlasts_the_grace_goes_on_and_its_caller_gets_the_result(
    serve: Serve, connect: Connect, here: str, gate: threading.Event
) -> None:
    entered = threading.Event()
    server = serve(here, m=lambda: entered.set() or (gate.wait() and np.ones(100_000)), who=who)
    client = connect(here)
    client.who()
    trust(server, "m")
    answers: list[Any] = []
    caller = threading.Thread(target=lambda: answers.append(client.m()))
    caller.start()
    assert entered.wait(DEADLINE_S)

    began = time.monotonic()
    server.stop(0.05)
    took_s = time.monotonic() - began
    gate.set()
    caller.join(DEADLINE_S)

    assert took_s < 1
    assert [answer.sum() for answer in answers] == [100_000]


def test_a_visit_may_stop_its_own_server(serve: Serve, connect: Connect, here: str) -> None:
    server = serve(here, who=who)
    server.bind("stop", server.stop)
    client = connect(here)
    client.who()
    trust(server, "stop")

    began = time.monotonic()
    client.stop()

    assert server.join(0)
    assert time.monotonic() - began < 0.9


def test_nobody_visits_a_server_that_drains(serve: Serve, connect: Connect, here: str) -> None:
    server = serve(here, who=who)
    client = connect(here, wait_for_ready=False)
    client.who()
    trust(server, "who")

    server.drain()

    with pytest.raises(courier.NotSent):
        client.who()
    assert courier.health(client) == "draining"


def test_the_next_server_at_the_address_is_greeted_and_visited_anew(
    serve: Serve, connect: Connect, here: str
) -> None:
    client = connect(here)
    server = serve(here, name="old", token=b"one", who=who)
    with pytest.raises(courier.Refused):
        client.who()
    server.stop()

    server = serve(here, name="new", who=who)
    client.who()
    trust(server, "who")
    assert client.who() == threading.get_ident()
    server.stop()
    server = serve(here, name="other", token=b"two", who=who)
    trust(server, "who")

    with pytest.raises(courier.Refused):
        client.who()


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
    make_quick(client.get)

    server.stop()
    del server, table
    gc.collect()

    assert gone() is None


# --- what is counted, and the limits -----------------------------------------------------------


def test_both_ends_count_visits_hops_and_futures_alike(
    serve: Serve, connect: Connect, here: str
) -> None:
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
    trust(server, "echo")
    call_three_times()
    client.futures.echo(np.ones(1000)).result(DEADLINE_S)
    with pytest.raises(ValueError, match="none"):
        client.futures.echo(None).result(DEADLINE_S)

    ours = client._channel.counts[b"echo"]
    assert server._house is not None
    (edge,) = server._house.counts.values()
    theirs = edge[b"echo"]
    for counts in (ours, theirs):
        assert (counts.started, counts.finished, counts.errors) == (9, 9, 3)
        assert counts.total_s > 0
    assert (ours.bytes_out, ours.bytes_in) == (theirs.bytes_in, theirs.bytes_out)
    assert ours.bytes_out > 3 * 8000


@pytest.mark.parametrize("quick", [False, True])
def test_either_side_says_how_much_it_takes_at_once(here: str, quick: bool) -> None:
    server = courier.Server("small", address=here, max_bytes=200_000)
    server.bind("zeros", lambda n: np.zeros(n, np.uint8))
    server.bind("length", len)
    server.start()
    client: Client[Any] = Client(here, max_bytes=300_000)
    client.length("")
    if quick:
        trust(server, "zeros", "length")

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
    memory._idle.clear()
    first = np.frombuffer(memory.allocate(5_000_000), np.uint8)
    address = first.ctypes.data

    part = first[10:20]
    del first
    other = np.frombuffer(memory.allocate(5_000_000), np.uint8)
    was_shared = other.ctypes.data == address
    del part, other
    gc.collect()
    again = [np.frombuffer(memory.allocate(5_000_000), np.uint8) for _ in range(2)]

    assert not was_shared
    assert address in [array.ctypes.data for array in again]
    memory._idle.clear()


def test_idle_memory_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    memory._idle.clear()
    monkeypatch.setattr(memory, "_MAX_IDLE", 10 << 20)

    held = [memory.allocate(4 << 20) for _ in range(10)]
    del held
    small = [memory.allocate(300_000) for _ in range(100)]
    del small

    assert sum(map(len, memory._idle)) <= 10 << 20
    assert len(memory._idle) <= memory._MAX_BLOCKS
    memory._idle.clear()


def test_a_small_idle_block_is_no_use_for_a_large_buffer_nor_a_large_one_for_a_small() -> None:
    memory._idle.clear()
    del (held := [memory.allocate(8 << 20)])[:]

    small, large = memory.allocate(300_000), memory.allocate(9 << 20)

    assert (small.nbytes, large.nbytes) == (300_000, 9 << 20)
    assert held == []
    assert [len(block) for block in memory._idle] == [8 << 20]
    memory._idle.clear()


# --- elsewhere ---------------------------------------------------------------------------------


def test_a_ring_through_a_visit_is_found_and_named(
    serve: Serve,
    connect: Connect,
    here: str,
    gate: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """a.f → b.g → c.h → a.f, where b.g runs in a thread of a's."""
    texts: list[str] = []
    said = threading.Event()
    monkeypatch.setattr(patience, "RING_AFTER_S", 0.0)
    monkeypatch.setattr(rings, "warn", lambda text: (texts.append(text), said.set()))
    clients = {name: connect(here + name) for name in "abc"}
    calls: list[int] = []

    def f() -> None:
        calls.append(who())
        if len(calls) == 1:
            calls.append(clients["b"].g())
        else:
            gate.wait()

    def g() -> int:
        clients["c"].h()
        return who()

    b = serve(here + "b", name="b", g=g, warm=who)
    serve(here + "c", name="c", h=clients["a"].f)
    serve(here + "a", name="a", f=f, warm=who)
    in_thread(clients["b"].warm)
    trust(b, "g")

    future = clients["a"].futures.f()
    assert said.wait(DEADLINE_S)
    gate.set()
    future.result(DEADLINE_S)

    assert "c.h → a.f → b.g → c.h" in texts[0] or "b.g → c.h → a.f → b.g" in texts[0]
    assert calls[0] == calls[-1]


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
