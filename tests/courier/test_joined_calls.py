"""Small calls that wait for their connection share a frame; each of them is still a call of its own."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from typing import Any

import pytest

from launchpad import courier
from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol import framing, joined
from launchpad.courier.server.pipelined_connection import (
    JoinedCalls,
    PipelinedConnection,
    ReadTurn,
)
from tests.waiting import until

N = 300  # more than a frame has


@pytest.fixture
def call_early(serve, connect, unix_address) -> Callable[..., Any]:
    """Calls the method n times before its server is up: so the calls wait, and are written together."""

    def call(method: Callable[..., Any], n: int = N) -> tuple[list[Any], Any, courier.Server]:
        client = connect(unix_address)
        futures = [client.futures.m(i) for i in range(n)]
        return futures, client, serve(unix_address, m=method)

    return call


def test_calls_and_results_share_frames_and_are_counted_alike(call_early, monkeypatch) -> None:
    sizes: dict[int, list[int]] = {framing.CALLS: [], framing.RESULTS: []}
    encode = joined.encode

    def note(kind: int, method: bytes, ids: Any, values: Any) -> bytes:
        sizes[kind].append(len(ids))
        return encode(kind, method, ids, values)

    monkeypatch.setattr(joined, "encode", note)
    futures, client, server = call_early(lambda value: value)

    assert [future.result(10) for future in futures] == list(range(N))
    assert max(sizes[framing.CALLS]) == joined.MOST
    assert max(sizes[framing.RESULTS]) > 1
    ours = client._channel.counts[b"m"]
    (by_method,) = server._core.counts.values()
    theirs = by_method[b"m"]
    assert (sum(ours.buckets), ours.errors) == (sum(theirs.buckets), theirs.errors) == (N, 0)
    assert (ours.bytes_out, ours.bytes_in) == (theirs.bytes_in, theirs.bytes_out)


def test_one_that_blocks_does_not_hold_up_others_in_its_frame(call_early, gate) -> None:
    futures, _, _ = call_early(lambda i: gate.wait(20) if i == 3 else i, 20)

    until(lambda: sum(future.done() for future in futures) == 19)
    was_done = futures[3].done()
    gate.set()

    assert not was_done
    assert futures[3].result(10) is True


def test_a_frame_is_run_though_its_thread_loses_the_turn_first(call_early, monkeypatch) -> None:
    begin_small = PipelinedConnection._begin_small
    lost: list[int] = []

    def lose_the_turn_first(self: PipelinedConnection, turn: ReadTurn, calls: JoinedCalls) -> bool:
        if not lost:
            lost.append(1)
            turn.runs = self._counts[calls.method]
            turn.since = 1.0
            until(lambda: turn.is_replaced)
        return begin_small(self, turn, calls)

    monkeypatch.setattr(PipelinedConnection, "_begin_small", lose_the_turn_first)
    futures, _, _ = call_early(lambda value: value)

    assert [future.result(10) for future in futures] == list(range(N))
    assert lost == [1]


def test_calls_that_leave_their_frame_are_not_counted_twice(call_early) -> None:
    futures, _, server = call_early(lambda i: time.sleep(0.003), 60)
    for future in futures:
        future.result(10)

    (by_method,) = server._core.counts.values()
    theirs = by_method[b"m"]
    alone = len(pickle.dumps(((59,), {}), 5))
    until(lambda: sum(theirs.buckets) == 60)  # a call is counted when its answer has been sent
    assert theirs.bytes_in < 1.2 * 60 * alone  # those that ran in their frame bring its ids


def test_each_has_an_outcome_and_a_cancelled_one_is_not_sent(serve, connect, unix_address) -> None:
    ran: list[int] = []

    def method(i: int) -> Any:
        ran.append(i)
        if i % 3 == 1:
            raise KeyError(i)
        return [i] if i % 3 else i

    client = connect(unix_address)
    futures = [client.futures.method(i) for i in range(30)]
    assert futures[5].cancel()
    serve(unix_address, method=method)

    for i, future in enumerate(futures):
        if i == 5:
            assert future.cancelled()
        elif i % 3 == 1:
            with pytest.raises(KeyError, match=str(i)):
                future.result(10)
        else:
            assert future.result(10) == ([i] if i % 3 else i)
    assert sorted(ran) == [i for i in range(30) if i != 5]
    stats = client.stats().methods["method"]
    assert (stats.calls, stats.errors, stats.in_flight) == (30, 10, 0)


@pytest.mark.parametrize("limited", ["server", "client"])
def test_a_peer_that_takes_little_shares_no_frames(serve, connect, unix_address, limited) -> None:
    limits = {limited: {"max_bytes": 200}}
    client = connect(unix_address, **limits.get("client", {}))
    futures = [client.futures.echo(i) for i in range(N)]
    serve(unix_address, echo=lambda value: value, **limits.get("server", {}))

    assert [future.result(10) for future in futures] == list(range(N))


@pytest.mark.parametrize(
    ("n", "body"),
    [
        (2, b""),
        (2, bytes(16) + b"no pickle"),
        (1 << 40, bytes(16)),
        (2, joined.encode(1, b"", [1], [1])[32:]),
    ],
)
def test_what_is_no_such_frame_is_refused(n: int, body: bytes) -> None:
    with pytest.raises(ProtocolError):
        joined.decode((framing.CALLS, n, b"m", body, (), 0, b""))


@pytest.mark.parametrize(
    ("value", "is_small"),
    [(7, True), (1 << 64, False), ("a" * 64, True), ("a" * 65, False), ([], False), (True, True)],
)
def test_only_small_scalars_share_a_frame(value: object, is_small: bool) -> None:
    assert joined.is_small(value) is is_small
