"""What clients and servers count: exactly what happened, whatever the carrier and kind of call."""

from __future__ import annotations

import asyncio
import dis
import math
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from launchpad import courier
from launchpad.courier import caller
from launchpad.courier.caller import Peer
from launchpad.courier.client.channel import SocketChannel
from launchpad.courier.server.serial_connection import SerialConnection
from launchpad.courier.server.thread_pool import ThreadPool
from launchpad.courier.telemetry import counters
from launchpad.courier.telemetry.call_stats import ClientStats, MethodStats, ServerStats
from launchpad.courier.telemetry.counters import Counts, EdgeCounts, MethodCounts
from tests.courier.conftest import DEADLINE_S, Connect, Serve

ME = f"pid {os.getpid()}"


def fail() -> None:
    raise ValueError("no")


async def fail_async() -> None:
    raise ValueError("no")


def settled(stats: Callable[[], Any], method: str) -> MethodStats:
    """What is counted once no call of the method is in flight: the answer arrives before it is counted."""
    return until(stats, method, lambda found: found.in_flight == 0)


def until(
    stats: Callable[[], Any], method: str, holds: Callable[[MethodStats], bool]
) -> MethodStats:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found: MethodStats | None = stats().methods.get(method)
        if found is not None and holds(found):
            return found
        assert time.monotonic() < deadline, f"{method} never became so:\n{stats()}"
        time.sleep(0.001)


# --- what is counted ---------------------------------------------------------------------------


def wait(client: courier.Client[Any], method: str) -> None:
    getattr(client, method)()


def with_a_deadline(client: courier.Client[Any], method: str) -> None:
    getattr(client.with_options(timeout_s=DEADLINE_S), method)()


def as_a_future(client: courier.Client[Any], method: str) -> None:
    getattr(client.futures, method)().result(DEADLINE_S)


def as_a_future_with_a_deadline(client: courier.Client[Any], method: str) -> None:
    as_a_future(client.with_options(timeout_s=DEADLINE_S), method)


def awaited(client: courier.Client[Any], method: str) -> None:
    async def main() -> None:
        await getattr(client.aio, method)()

    asyncio.run(main())


def submitted(client: courier.Client[Any], method: str) -> None:
    courier.submit(getattr(client, method)).result(DEADLINE_S)


KINDS = [
    wait,
    with_a_deadline,
    as_a_future,
    as_a_future_with_a_deadline,
    awaited,
    submitted,
]


@pytest.mark.every_transport
@pytest.mark.parametrize("call", KINDS)
@pytest.mark.parametrize("failing", [fail, fail_async])
def test_both_sides_count_every_call_and_every_error(
    address: str,
    serve: Serve,
    connect: Connect,
    call: Callable[[courier.Client[Any], str], None],
    failing: Callable[[], Any],
) -> None:
    server = serve(address, work=lambda: None, fail=failing)
    client = connect(address)

    for _ in range(7):
        call(client, "work")
    for _ in range(3):
        with pytest.raises(ValueError, match="no"):
            call(client, "fail")

    for stats in (client.stats, server.stats):
        work, failed = settled(stats, "work"), settled(stats, "fail")
        assert (work.calls, work.errors, work.ended, work.in_flight) == (7, 0, 7, 0)
        assert (failed.calls, failed.errors, failed.ended, failed.in_flight) == (3, 3, 3, 0)


@pytest.mark.parametrize("call", KINDS)
def test_calls_are_in_flight_while_they_are(
    address: str,
    serve: Serve,
    connect: Connect,
    gate: threading.Event,
    call: Callable[[courier.Client[Any], str], None],
) -> None:
    server = serve(address, block=gate.wait)
    client = connect(address)

    with ThreadPoolExecutor(3) as pool:
        pending = [pool.submit(call, client, "block") for _ in range(3)]
        for stats in (client.stats, server.stats):
            blocked = until(stats, "block", lambda found: found.in_flight == 3)
            assert (blocked.calls, blocked.ended) == (3, 0)
            assert math.isnan(blocked.mean_s)
        gate.set()
        for each in pending:
            each.result(DEADLINE_S)

    assert settled(client.stats, "block").calls == settled(server.stats, "block").calls == 3


@pytest.mark.every_transport
def test_bytes_are_those_of_arguments_and_results_arrays_included(
    address: str, serve: Serve, connect: Connect
) -> None:
    server = serve(address, shrink=lambda array: array[:10_000].copy())
    client = connect(address)

    client.shrink(np.zeros(100_000))
    client.futures.shrink(np.zeros(100_000)).result(DEADLINE_S)

    mine, theirs = settled(client.stats, "shrink"), settled(server.stats, "shrink")
    assert (mine.bytes_out, mine.bytes_in) == (theirs.bytes_in, theirs.bytes_out)
    assert 1_600_000 < mine.bytes_out < 1_601_000
    assert 160_000 < mine.bytes_in < 161_000


def test_a_call_that_ran_out_of_time_is_an_error_on_both_sides(
    address: str, serve: Serve, connect: Connect, gate: threading.Event
) -> None:
    server = serve(address, work=lambda: None, block=gate.wait)
    client = connect(address)
    client.work()  # from here on a call is sent at once, and found too late by nobody but us
    client.futures.work().result(DEADLINE_S)
    in_haste = client.with_options(timeout_s=0.05)

    with pytest.raises(courier.DeadlineExceeded):
        in_haste.block()
    with pytest.raises(courier.DeadlineExceeded):
        in_haste.futures.block().result(DEADLINE_S)

    late = client.stats().methods["block"]
    assert (late.calls, late.errors, late.in_flight) == (2, 2, 0)
    gate.set()
    until(server.stats, "block", lambda found: (found.calls, found.in_flight) == (2, 0))


def test_a_call_whose_arguments_cannot_be_sent_is_none(
    address: str, serve: Serve, connect: Connect
) -> None:
    server = serve(address, take=lambda x: None)
    client = connect(address)

    for call in (client.take, client.futures.take):
        with pytest.raises(TypeError):
            call(threading.Lock())
    client.take(None)

    assert client.stats().methods["take"].calls == 1
    assert settled(server.stats, "take").calls == 1


def test_a_server_counts_as_ended_what_is_not_waited_for_any_more(
    unix_address: str, serve: Serve, connect: Connect, gate: threading.Event
) -> None:
    def slow() -> bytes:
        gate.wait(DEADLINE_S)
        return bytes(8 << 20)  # more than fits into the socket: the end of the client is noticed

    server = serve(unix_address, work=lambda: None, slow=slow)
    client = connect(unix_address)
    client.work()  # from here on a call is sent at once

    with pytest.raises(courier.DeadlineExceeded):
        client.with_options(timeout_s=0.05).slow()
    courier.close(client)
    gate.set()

    found = settled(server.stats, "slow")
    assert (found.calls, found.errors, found.ended) == (1, 1, 1)


def test_counts_outlive_connections(address: str, serve: Serve, connect: Connect) -> None:
    server = serve(address, work=lambda: None)
    client = connect(address)

    for _ in range(3):
        client.work()
        client.futures.work().result(DEADLINE_S)
        courier.close(client)
    client.work()

    assert settled(client.stats, "work").calls == settled(server.stats, "work").calls == 7


def test_a_client_goes_on_counting_with_the_next_server(
    address: str, serve: Serve, connect: Connect
) -> None:
    first = serve(address, work=lambda: None)
    client = connect(address)
    client.work()
    incarnation = client.stats().incarnation
    first.stop()

    second = serve(address, work=lambda: None)
    client.work()

    assert client.stats().methods["work"].calls == 2
    assert settled(first.stats, "work").calls == settled(second.stats, "work").calls == 1
    assert client.stats().incarnation == second.stats().incarnation != incarnation


def test_views_with_other_options_count_together(
    address: str, serve: Serve, connect: Connect
) -> None:
    serve(address, work=lambda: None)
    client = connect(address)

    client.with_options(timeout_s=DEADLINE_S).work()
    client.work()

    assert client.stats().methods["work"].calls == 2
    assert client.with_options(timeout_s=1.0).stats().methods == client.stats().methods


def test_methods_that_there_are_not_are_counted_together(
    address: str, serve: Serve, connect: Connect
) -> None:
    server = serve(address, work=lambda: None)
    client = connect(address)

    for name in ("wrok", "wokr"):
        with pytest.raises(courier.MethodNotFound):
            getattr(client, name)()

    unknown = settled(server.stats, "(unknown)")
    assert (unknown.calls, unknown.errors) == (2, 2)
    assert set(server.stats().methods) == {"(unknown)"}


def test_names_that_a_fallback_takes_are_counted_apart_up_to_a_limit() -> None:
    by_method = Counts()

    for number in range(Counts.MAX_METHODS + 5):
        by_method[b"%d" % number].finish(0.0, 0, 0)

    assert len(by_method) == Counts.MAX_METHODS + 1
    assert sum(by_method[counters.UNKNOWN].buckets) == 5


# --- by edge -----------------------------------------------------------------------------------


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> threading.local:
    """Threads say who they are."""
    name = threading.local()
    monkeypatch.setattr(
        caller, "_provider", lambda: Peer(name.is_) if hasattr(name, "is_") else None
    )
    return name


@pytest.mark.every_transport
def test_a_server_counts_by_client_too(
    address: str, serve: Serve, connect: Connect, named: threading.local
) -> None:
    server = serve(address, work=lambda: None)

    for who, calls in (("actor-0", 2), ("actor-1", 3)):
        named.is_ = who
        client = connect(address)
        for _ in range(calls):
            client.work()
    del named.is_
    client = connect(address)
    client.work()

    assert settled(server.stats, "work").calls == 6
    edges = server.stats().edges
    assert {peer: edges[peer]["work"].calls for peer in edges} == {
        "actor-0": 2,
        "actor-1": 3,
        ME: 1,
    }


def test_clients_beyond_a_thousand_are_counted_together() -> None:
    edges = EdgeCounts(lambda method: True)

    for number in range(EdgeCounts.MAX_PEERS + 5):
        edges.of(f"pid {number}")[b"work"].finish(0.0, 0, 0)

    assert len(edges) == EdgeCounts.MAX_PEERS + 1
    assert sum(edges["(others)"][b"work"].buckets) == 5


# --- from afar ---------------------------------------------------------------------------------


def test_a_server_tells_its_stats_when_asked(address: str, serve: Serve, connect: Connect) -> None:
    server = serve(address, name="learner-0", work=lambda: None)
    client = connect(address)
    client.work()
    settled(server.stats, "work")

    asked = courier.server_stats(client)

    assert asked.methods["work"] == server.stats().methods["work"]
    assert (asked.name, asked.address) == ("learner-0", address)
    assert asked.incarnation == courier.stats(client).incarnation
    assert asked.methods["courier/stats"].in_flight == 1
    assert "courier/stats" not in courier.list_methods(client)


def test_a_server_has_its_stats_and_health_before_it_serves_the_first_call(
    unix_address: str, serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect(unix_address)
    start_thread = ThreadPool.start_thread
    answers: list[Any] = []

    def make_two_calls_before_start_returns(pool: ThreadPool) -> None:
        monkeypatch.setattr(ThreadPool, "start_thread", start_thread)
        pool.start_thread()
        answers.append(courier.server_stats(client))
        answers.append(courier.health(client))

    monkeypatch.setattr(ThreadPool, "start_thread", make_two_calls_before_start_returns)
    serve(unix_address)

    stats, health = answers
    assert list(stats.edges) == [ME]
    assert health == "serving"


def test_a_method_called_stats_is_reached_by_its_future(
    address: str, serve: Serve, connect: Connect
) -> None:
    serve(address, stats=lambda: "the server's own")
    client = connect(address)

    assert client.futures.stats().result(DEADLINE_S) == "the server's own"
    assert isinstance(client.stats(), ClientStats)
    assert courier.stats(client).methods["stats"].calls == 1


def test_stats_say_whose_they_are(unix_address: str, serve: Serve, connect: Connect) -> None:
    server = serve(unix_address, name="learner-0", work=lambda: None)
    client = connect(unix_address)
    before = client.stats()
    client.work()
    client.futures.work().result(DEADLINE_S)

    mine, theirs = client.stats(), server.stats()

    assert (before.name, before.server, before.incarnation, before.connections) == (ME, "", "", 0)
    assert (mine.name, mine.server, mine.address) == (ME, "learner-0", unix_address)
    assert mine.connections == theirs.connections == 2
    assert 0 < before.uptime_s < mine.uptime_s < theirs.uptime_s
    courier.close(client)
    assert client.stats().connections == 0


def test_a_server_that_has_not_started_has_counted_nothing(unix_address: str) -> None:
    stats = courier.Server("idle", address=unix_address).stats()

    assert stats == ServerStats("idle", unix_address, "", 0.0, 0, {}, {})
    assert str(stats).splitlines()[1:] == ["no calls yet"]
    assert parse(stats.to_prometheus())["courier_server_connections"] == {("idle",): 0}


# --- what follows from the counts --------------------------------------------------------------


def method_stats(*took_s: float) -> MethodStats:
    """The stats of a method whose calls took so long."""
    method = MethodCounts()
    for each in took_s:
        method.started += 1
        method.finish(each, 10, 20)
    by_method = Counts()
    by_method[b"m"] = method
    from launchpad.courier.telemetry import call_stats

    return call_stats.read(by_method)["m"]


def test_quantiles_are_right_within_a_bucket() -> None:
    stats = method_stats(*[100e-6] * 98, 10e-3, 1.0)

    assert 64e-6 <= stats.p50_s <= 128e-6
    assert 8.192e-3 <= stats.p99_s <= 16.384e-3
    assert stats.quantile_s(1.0) == pytest.approx(1.048576)
    assert stats.mean_s == pytest.approx((98 * 100e-6 + 10e-3 + 1.0) / 100)


def test_quantiles_are_interpolated() -> None:
    stats = method_stats(*[100e-6] * 4)

    assert [stats.quantile_s(q) for q in (0.25, 0.5, 1.0)] == pytest.approx([80e-6, 96e-6, 128e-6])


def test_the_histogram_goes_from_the_first_call_to_the_last() -> None:
    stats = method_stats(0.0, 3e-6, 5e-6)

    assert stats.histogram == pytest.approx({1e-6: 1, 2e-6: 0, 4e-6: 1, 8e-6: 1})
    assert method_stats().histogram == {}


def test_no_call_is_too_long_to_be_counted() -> None:
    a_year_s = 365 * 86400.0

    assert method_stats(a_year_s).p50_s == pytest.approx(a_year_s, rel=1.0)


def test_stats_pickle_and_compare() -> None:
    stats = method_stats(1e-6, 2e-6)

    assert pickle.loads(pickle.dumps(stats)) == stats


# --- to be read --------------------------------------------------------------------------------


def test_stats_print_as_a_table(unix_address: str) -> None:
    step = MethodStats(1001, 2, 1, 1_234_567, 999, 0.12, method_stats(*[100e-6] * 1000).buckets)
    edges = {"actor-0": {"step": step}, ME: {"courier/stats": method_stats()}}
    stats = ServerStats("learner-0", "unix:/s", "5f" * 16, 12.0, 2, {}, edges)

    assert str(stats).splitlines() == [
        "learner-0 at unix:/s: up 12.0 s, 2 connections, incarnation 5f5f5f5f",
        f"method         from{' ' * (len(ME) - 4)}  calls  errors  in flight    mean      p50     p99"
        "       in    out",
        f"courier/stats  {ME}      0       0          0       –        –       –      0 B    0 B",
        f"step           {'actor-0':{len(ME)}}  1,001       2          1  120 µs  96.0 µs  127 µs"
        "  1.23 MB  999 B",
    ]


Samples = dict[str, dict[tuple[str, ...], float]]


def parse(text: str) -> Samples:
    """Sample → its labels' values but the server's address → value; as Prometheus' own parser has it."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(sample.labels.values())
            assert labels not in found.setdefault(sample.name, {}), "a sample is told twice"
            found[sample.name][labels] = sample.value
    return found


def test_prometheus_reads_what_a_server_tells(
    address: str, serve: Serve, connect: Connect, gate: threading.Event
) -> None:
    server = serve(address, name="learner-0", work=lambda: None, fail=fail, block=gate.wait)
    client = connect(address)
    for _ in range(3):
        client.work()
    with pytest.raises(ValueError, match="no"):
        client.fail()
    blocked = client.futures.block()
    until(server.stats, "block", lambda found: found.in_flight == 1)
    settled(server.stats, "fail")

    samples = parse(server.stats().to_prometheus())

    edge = ("learner-0", ME)
    assert samples["courier_server_calls_total"] == {
        (*edge, "work"): 3,
        (*edge, "fail"): 1,
        (*edge, "block"): 1,
    }
    assert samples["courier_server_errors_total"][(*edge, "fail")] == 1
    assert samples["courier_server_in_flight"][(*edge, "block")] == 1
    assert samples["courier_server_duration_seconds_count"][(*edge, "work")] == 3
    gate.set()
    blocked.result(DEADLINE_S)


def test_prometheus_reads_what_a_client_tells(address: str, serve: Serve, connect: Connect) -> None:
    serve(address, name="learner-0", work=lambda: None)
    client = connect(address)
    client.work()

    samples = parse(client.stats().to_prometheus())

    assert samples["courier_client_calls_total"] == {(ME, "learner-0", "work"): 1}
    assert (ME, "learner-0", address, client.stats().incarnation) in samples["courier_client_info"]


def test_the_histogram_of_prometheus_is_cumulative_and_in_seconds() -> None:
    work = method_stats(3e-6, 100e-6, 100e-6, 2.0, 1000.0)
    stats = ServerStats("s", "a", "", 0.0, 0, {}, {"p": {"work": work}})

    samples = parse(stats.to_prometheus())

    buckets = {le[-1]: n for le, n in samples["courier_server_duration_seconds_bucket"].items()}
    limits = [float(le) for le in buckets]
    assert limits == sorted(limits)
    assert list(buckets.values()) == sorted(buckets.values())
    wanted = {"8e-06": 1, "6.4e-05": 1, "0.000128": 3, "2.097152": 4, "134.217728": 4, "+Inf": 5}
    assert {le: buckets[le] for le in wanted} == wanted
    assert samples["courier_server_duration_seconds_sum"] == {("s", "p", "work"): work.total_s}


def test_labels_are_escaped() -> None:
    strange = 'a "quoted" \\ name\nin two lines'
    stats = ServerStats(strange, "a", "", 0.0, 0, {}, {strange: {strange: method_stats(1e-3)}})

    samples = parse(stats.to_prometheus())

    assert samples["courier_server_calls_total"] == {(strange, strange, strange): 1}


# --- without a lock ----------------------------------------------------------------------------


@pytest.fixture
def hectic() -> Iterator[None]:
    """Threads change as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.slow
def test_no_call_of_four_threads_is_lost(
    address: str, serve: Serve, connect: Connect, hectic: None
) -> None:
    server = serve(address, work=lambda data: data)
    client = connect(address)

    def call(_: int) -> None:
        for _ in range(10_000):
            client.work(b"12345678")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(call, range(4)))

    mine, theirs = settled(client.stats, "work"), settled(server.stats, "work")
    for stats in (mine, theirs):
        assert (stats.calls, stats.errors, stats.ended) == (40_000, 0, 40_000)
    assert (mine.bytes_out, mine.bytes_in) == (theirs.bytes_in, theirs.bytes_out)
    assert mine.bytes_out % 40_000 == mine.bytes_in % 40_000 == 0


@pytest.mark.usefixtures("hectic")
def test_no_count_of_four_threads_is_lost() -> None:
    method = MethodCounts()

    def count(_: int) -> None:
        for _ in range(50_000):
            method.started += 1
            method.errors += 1
            method.finish(1.0, 3, 5)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(4)))

    assert (method.started, method.errors, sum(method.buckets)) == (200_000, 200_000, 200_000)
    assert (method.bytes_in, method.bytes_out, method.total_s) == (600_000, 1_000_000, 200_000.0)


@pytest.mark.parametrize(
    "function",
    [MethodCounts.finish, SocketChannel.call, SerialConnection._answer],
)
def test_nothing_is_called_between_reading_a_count_and_writing_it(
    function: Callable[..., Any],
) -> None:
    """CPython changes threads at calls and when it jumps back: what makes counting safe without a lock."""
    lines: dict[int | None, list[str]] = {}
    line = None
    for each in dis.get_instructions(function):
        line = each.starts_line if isinstance(each.starts_line, int) and each.starts_line else line
        line = getattr(each, "line_number", None) or line
        lines.setdefault(line, []).append(f"{each.opname} {each.argrepr}")

    counting = [ops for ops in lines.values() if any(op == "BINARY_OP +=" for op in ops)]
    stored = [ops for ops in counting if any(op.startswith("STORE_") for op in ops)]

    assert len(stored) >= 4
    for ops in stored:
        assert not [op for op in ops if op.startswith(("CALL", "JUMP_BACKWARD", "RESUME"))], ops
