"""What clients and servers count: exactly what happened, whatever the carrier and kind of call."""

from __future__ import annotations

import dis
import math
import os
import pickle
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from launchpad import courier
from launchpad.courier import caller
from launchpad.courier.caller import Peer
from launchpad.courier.client.call import call_and_wait
from launchpad.courier.server.serial_connection import SerialConnection
from launchpad.courier.server.thread_pool import ThreadPool
from launchpad.courier.telemetry import call_stats, counters
from launchpad.courier.telemetry.call_stats import ClientStats, MethodStats, ServerStats
from launchpad.courier.telemetry.counters import Counts, EdgeCounts, MethodCounts
from tests.courier.conftest import DEADLINE_S, in_background
from tests.helpers.calls import KINDS
from tests.waiting import until

ME = f"pid {os.getpid()}"


def fail() -> None:
    raise ValueError("no")


async def fail_async() -> None:
    raise ValueError("no")


def counted(
    stats: Callable[[], Any], method: str, *, calls: int | None = None, in_flight: int = 0
) -> MethodStats:
    """What is counted once so many calls are in flight: an answer arrives before it is counted."""

    def find() -> MethodStats | None:
        found: MethodStats | None = stats().methods.get(method)
        if found is None or found.in_flight != in_flight or calls not in (None, found.calls):
            return None
        return found

    return until(find)


# --- what is counted ---------------------------------------------------------------------------


@pytest.mark.every_transport
@pytest.mark.parametrize("call", KINDS)
def test_both_sides_count_every_call_and_every_error(serve, connect, address, call) -> None:
    server = serve(address, work=lambda: None, fail=fail, fail_async=fail_async)
    client = connect(address)

    for _ in range(7):
        call(client, "work")
    for method in ("fail", "fail_async"):
        for _ in range(3):
            with pytest.raises(ValueError, match="no"):
                call(client, method)

    for stats in (client.stats, server.stats):
        work = counted(stats, "work")
        assert (work.calls, work.errors, work.ended, work.in_flight) == (7, 0, 7, 0)
        for method in ("fail", "fail_async"):
            failed = counted(stats, method)
            assert (failed.calls, failed.errors, failed.ended, failed.in_flight) == (3, 3, 3, 0)


@pytest.mark.parametrize("call", KINDS)
def test_calls_are_in_flight_while_they_are(serve, connect, address, gate, call) -> None:
    server = serve(address, block=gate.wait)
    client = connect(address)

    pending = [in_background(call, client, "block") for _ in range(3)]
    for stats in (client.stats, server.stats):
        blocked = counted(stats, "block", in_flight=3)
        assert (blocked.calls, blocked.ended) == (3, 0)
        assert math.isnan(blocked.mean_s)
    gate.set()
    for each in pending:
        each.result(DEADLINE_S)

    assert counted(client.stats, "block").calls == counted(server.stats, "block").calls == 3


@pytest.mark.every_transport
def test_bytes_are_those_of_arguments_and_results_arrays_included(serve, connect, address) -> None:
    server = serve(address, shrink=lambda array: array[:10_000].copy())
    client = connect(address)

    client.shrink(np.zeros(100_000))
    client.futures.shrink(np.zeros(100_000)).result(DEADLINE_S)

    mine, theirs = counted(client.stats, "shrink"), counted(server.stats, "shrink")
    assert (mine.bytes_out, mine.bytes_in) == (theirs.bytes_in, theirs.bytes_out)
    assert 1_600_000 < mine.bytes_out < 1_601_000
    assert 160_000 < mine.bytes_in < 161_000


def test_a_call_out_of_time_is_an_error_on_both_sides(serve, connect, address, gate) -> None:
    server = serve(address, work=lambda: None, block=gate.wait)
    client = connect(address)
    client.work()  # from here on a call is sent at once, and found too late by nobody but us
    client.futures.work().result(DEADLINE_S)
    in_haste = client.with_options(timeout_s=0.2)

    with pytest.raises(courier.DeadlineExceeded):
        in_haste.block()
    with pytest.raises(courier.DeadlineExceeded):
        in_haste.futures.block().result(DEADLINE_S)

    late = client.stats().methods["block"]
    assert (late.calls, late.errors, late.in_flight) == (2, 2, 0)
    gate.set()
    counted(server.stats, "block", calls=2)


def test_unsent_calls_are_not_counted_and_unknown_methods_together(serve, connect, address) -> None:
    server = serve(address, take=lambda x: None)
    client = connect(address)

    for call in (client.take, client.futures.take):
        with pytest.raises(TypeError):
            call(threading.Lock())
    client.take(None)
    for name in ("wrok", "wokr"):
        with pytest.raises(courier.MethodNotFound):
            getattr(client, name)()

    assert client.stats().methods["take"].calls == 1
    assert counted(server.stats, "take").calls == 1
    unknown = counted(server.stats, "(unknown)")
    assert (unknown.calls, unknown.errors) == (2, 2)
    assert set(server.stats().methods) == {"take", "(unknown)"}


def test_a_server_counts_as_ended_what_nobody_waits_for(serve, connect, unix_address, gate) -> None:
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

    found = counted(server.stats, "slow")
    assert (found.calls, found.errors, found.ended) == (1, 1, 1)


def test_counts_outlive_connections_and_servers_in_all_views(serve, connect, address) -> None:
    first = serve(address, work=lambda: None)
    client = connect(address)
    for _ in range(3):
        client.work()
        client.futures.work().result(DEADLINE_S)
        courier.close(client)
    client.with_options(timeout_s=DEADLINE_S).work()
    before = client.stats()
    first.stop()

    second = serve(address, work=lambda: None)
    client.work()

    assert counted(client.stats, "work").calls == 8
    assert (counted(first.stats, "work").calls, counted(second.stats, "work").calls) == (7, 1)
    assert client.with_options(timeout_s=1.0).stats().methods == client.stats().methods
    assert before.incarnation == first.stats().incarnation
    assert client.stats().incarnation == second.stats().incarnation != before.incarnation


def test_methods_of_a_fallback_and_clients_are_counted_apart_up_to_a_limit() -> None:
    by_method = Counts()
    edges = EdgeCounts(lambda method: True)

    for number in range(Counts.MAX_METHODS + 5):
        by_method[b"%d" % number].finish(0.0, 0, 0)
    for number in range(EdgeCounts.MAX_PEERS + 5):
        edges.of(f"pid {number}")[b"work"].finish(0.0, 0, 0)

    assert len(by_method) == Counts.MAX_METHODS + 1
    assert sum(by_method[counters.UNKNOWN].buckets) == 5
    assert len(edges) == EdgeCounts.MAX_PEERS + 1
    assert sum(edges["(others)"][b"work"].buckets) == 5


@pytest.mark.every_transport
def test_a_server_counts_by_client_too(serve, connect, address, monkeypatch) -> None:
    server = serve(address, work=lambda: None)

    for peer, calls in ((Peer("actor-0"), 2), (Peer("actor-1"), 3), (None, 1)):
        monkeypatch.setattr(caller, "_provider", lambda peer=peer: peer)
        client = connect(address)
        for _ in range(calls):
            client.work()

    assert counted(server.stats, "work").calls == 6
    by_client = {peer: methods["work"].calls for peer, methods in server.stats().edges.items()}
    assert by_client == {"actor-0": 2, "actor-1": 3, ME: 1}


def test_a_server_tells_its_stats_when_asked(serve, connect, address) -> None:
    server = serve(address, name="learner-0", work=lambda: None)
    client = connect(address)
    client.work()
    counted(server.stats, "work")

    asked = courier.server_stats(client)

    assert asked.methods["work"] == server.stats().methods["work"]
    assert (asked.name, asked.address) == ("learner-0", address)
    assert asked.incarnation == courier.stats(client).incarnation
    assert asked.methods["courier/stats"].in_flight == 1
    assert "courier/stats" not in courier.list_methods(client)


def test_a_server_has_its_stats_and_health_before_it_serves_the_first_call(
    serve, connect, unix_address, monkeypatch
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


def test_a_method_called_stats_is_reached_by_its_future(client_of) -> None:
    client = client_of(stats=lambda: "the server's own")

    assert client.futures.stats().result(DEADLINE_S) == "the server's own"
    assert isinstance(client.stats(), ClientStats)
    assert courier.stats(client).methods["stats"].calls == 1


def test_stats_say_whose_they_are(serve, connect, unix_address) -> None:
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
    counts = MethodCounts()
    for each in took_s:
        counts.started += 1
        counts.finish(each, 10, 20)
    return call_stats.of(counts)


def test_quantiles_are_interpolated_within_a_bucket() -> None:
    alike = method_stats(*[100e-6] * 4)
    mixed = method_stats(*[100e-6] * 98, 10e-3, 1.0)
    a_year_s = 365 * 86400.0

    assert [alike.quantile_s(q) for q in (0.25, 0.5, 1.0)] == pytest.approx([80e-6, 96e-6, 128e-6])
    assert 64e-6 <= mixed.p50_s <= 128e-6
    assert 8.192e-3 <= mixed.p99_s <= 16.384e-3
    assert mixed.quantile_s(1.0) == pytest.approx(1.048576)
    assert mixed.mean_s == pytest.approx((98 * 100e-6 + 10e-3 + 1.0) / 100)
    assert method_stats(a_year_s).p50_s == pytest.approx(a_year_s, rel=1.0)  # none is too long


def test_the_histogram_goes_from_the_first_call_to_the_last() -> None:
    stats = method_stats(0.0, 3e-6, 5e-6)

    assert stats.histogram == pytest.approx({1e-6: 1, 2e-6: 0, 4e-6: 1, 8e-6: 1})
    assert method_stats().histogram == {}
    assert pickle.loads(pickle.dumps(stats)) == stats


# --- to be read --------------------------------------------------------------------------------


def test_stats_print_as_a_table() -> None:
    step = MethodStats(1001, 2, 1, 1_234_567, 999, 0.12, method_stats(*[100e-6] * 1000).buckets)
    edges = {"actor-0": {"step": step}, ME: {"courier/stats": method_stats()}}
    stats = ServerStats("learner-0", "unix:/s", "5f" * 16, 12.0, 2, {}, edges)

    assert str(stats).splitlines() == [
        "learner-0 at unix:/s: up 12.0 s, 2 connections, incarnation 5f5f5f5f",
        f"method         from{' ' * (len(ME) - 4)}  calls  errors  in flight    mean      p50     p99"
        "        in    out",
        f"courier/stats  {ME}      0       0          0       –        –       –       0 B    0 B",
        f"step           {'actor-0':{len(ME)}}  1,001       2          1  120 µs  96.0 µs  127 µs"
        "  1.18 MiB  999 B",
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


def test_prometheus_reads_what_a_server_and_a_client_tell(serve, connect, address, gate) -> None:
    server = serve(address, name="learner-0", work=lambda: None, fail=fail, block=gate.wait)
    client = connect(address)
    for _ in range(3):
        client.work()
    with pytest.raises(ValueError, match="no"):
        client.fail()
    blocked = client.futures.block()
    counted(server.stats, "block", in_flight=1)
    counted(server.stats, "fail")

    theirs, mine = parse(server.stats().to_prometheus()), parse(client.stats().to_prometheus())

    calls = {"work": 3, "fail": 1, "block": 1}
    edge = ("learner-0", ME)
    assert theirs["courier_server_calls_total"] == {(*edge, m): n for m, n in calls.items()}
    assert theirs["courier_server_errors_total"][(*edge, "fail")] == 1
    assert theirs["courier_server_in_flight"][(*edge, "block")] == 1
    assert theirs["courier_server_duration_seconds_count"][(*edge, "work")] == 3
    edge = (ME, "learner-0")
    assert mine["courier_client_calls_total"] == {(*edge, m): n for m, n in calls.items()}
    assert (*edge, address, client.stats().incarnation) in mine["courier_client_info"]
    gate.set()
    blocked.result(DEADLINE_S)


def test_the_histogram_of_prometheus_is_cumulative_and_in_seconds_and_labels_are_escaped() -> None:
    strange = 'a "quoted" \\ name\nin two lines'
    work = method_stats(3e-6, 100e-6, 100e-6, 2.0, 1000.0)
    stats = ServerStats(strange, "a", "", 0.0, 0, {}, {strange: {strange: work}})

    samples = parse(stats.to_prometheus())

    buckets = {le[-1]: n for le, n in samples["courier_server_duration_seconds_bucket"].items()}
    limits = [float(le) for le in buckets]
    assert limits == sorted(limits)
    assert list(buckets.values()) == sorted(buckets.values())
    wanted = {"8e-06": 1, "6.4e-05": 1, "0.000128": 3, "2.097152": 4, "134.217728": 4, "+Inf": 5}
    assert {le: buckets[le] for le in wanted} == wanted
    assert samples["courier_server_duration_seconds_sum"] == {(strange,) * 3: work.total_s}


def test_no_call_of_four_threads_is_lost(serve, connect, address) -> None:
    server = serve(address, work=lambda data: data)
    client = connect(address)

    def call() -> None:
        for _ in range(1000):
            client.work(b"12345678")

    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads change as often as they can
    try:
        for thread in [in_background(call) for _ in range(4)]:
            thread.result(60)
    finally:
        sys.setswitchinterval(usual_s)

    mine, theirs = counted(client.stats, "work"), counted(server.stats, "work")
    for stats in (mine, theirs):
        assert (stats.calls, stats.errors, stats.ended) == (4000, 0, 4000)
    assert (mine.bytes_out, mine.bytes_in) == (theirs.bytes_in, theirs.bytes_out)
    assert mine.bytes_out % 4000 == mine.bytes_in % 4000 == 0


@pytest.mark.parametrize("function", [MethodCounts.finish, call_and_wait, SerialConnection._answer])
def test_nothing_is_called_between_reading_a_count_and_writing_it(function) -> None:
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
