"""The server's side of pipelined calls: quick ones in batches, and slow ones out of their way."""

from __future__ import annotations

import socket
import threading
from functools import partial

import pytest

from launchpad import courier
from launchpad.courier.codec import pickling
from launchpad.courier.protocol import framing, handshake
from launchpad.courier.server import pipelined_connection
from launchpad.courier.server.pipelined_connection import ReadTurn
from launchpad.courier.server.thread_pool import Job
from launchpad.courier.telemetry.counters import MethodCounts
from tests.courier.conftest import in_background
from tests.helpers import raw_sockets
from tests.waiting import until

greeted = partial(raw_sockets.greeted, flags=handshake.OVERLAP)


def call(call_id: int, method: str, *args: object) -> bytes:
    body, _ = pickling.encode_call(args, {})
    return framing.encode_small(framing.CALL, call_id, method.encode(), body)


def read_answers(sock: socket.socket, n: int) -> list[tuple[int, int]]:
    """The kind and the call of each, in the order in which they come."""
    return [(frame[0], frame[1]) for frame in raw_sockets.read_frames(sock, n)]


def test_what_is_sent_before_hanging_up_is_answered(serve, unix_address, gate) -> None:
    """Quick calls, one that holds the turn up, and one that comes later."""
    serve(unix_address, echo=lambda value: value, hang=gate.wait)

    with greeted(unix_address) as sock:
        sock.sendall(call(1, "echo", 1) + call(2, "hang") + call(3, "echo", 3))
        sock.shutdown(socket.SHUT_WR)
        first = read_answers(sock, 2)
        gate.set()
        rest = read_answers(sock, 2)  # up to the end

    assert first == [(framing.RESULT, 1), (framing.RESULT, 3)]
    assert rest == [(framing.RESULT, 2)]


def test_a_call_is_stuck_when_two_looks_meet_it_and_not_when_one_does() -> None:
    turn = ReadTurn(connection=None)
    turn.runs = MethodCounts()

    looks = []
    for since in (0.0, 1.0, 2.0, 2.0, 0.0, 2.0):
        turn.since = since
        looks.append(turn.seems_blocked())

    assert looks == [False, False, False, True, False, False]


def test_a_call_that_waits_for_a_thread_can_be_cancelled(serve, unix_address, monkeypatch) -> None:
    ran: list[int] = []
    waiting: list[Job] = []
    server = serve(unix_address, work=ran.append)
    # Every method that has an average is slow:
    monkeypatch.setattr(pipelined_connection, "_SLOW_S", -1.0)
    monkeypatch.setattr(server._core.pool, "submit", waiting.append)

    with greeted(unix_address) as sock:
        sock.sendall(call(0, "work", 0))
        answered = read_answers(sock, 1)
        (session,) = server._core.connections
        session._averages = {session._counts[b"work"]: 0.0}
        sock.sendall(call(1, "work", 1) + call(2, "work", 2) + call(3, "work", 3))
        until(lambda: len(waiting) >= 3)
        sock.sendall(framing.encode_small(framing.CANCEL, 2, b"", b""))
        until(lambda: 2 not in session._offloaded)
        for job in waiting:
            job.run()
        answered += read_answers(sock, 2)

    assert answered == [(framing.RESULT, 0), (framing.RESULT, 1), (framing.RESULT, 3)]
    assert ran == [0, 1, 3]


def test_urgent_calls_overtake_those_that_came_with_them(serve, unix_address) -> None:
    order: list[str] = []

    @courier.priority
    def urgent() -> None:
        order.append("urgent")

    serve(unix_address, normal=lambda: order.append("normal"), urgent=urgent)

    with greeted(unix_address) as sock:
        sock.sendall(call(1, "normal") + call(2, "normal") + call(3, "urgent"))
        read_answers(sock, 3)

    assert order == ["urgent", "normal", "normal"]


def test_a_client_that_does_not_read_holds_back_no_other(serve, connect, unix_address) -> None:
    serve(unix_address, make=lambda n: b"x" * n)

    with greeted(unix_address) as sock:
        sock.sendall(b"".join(call(i, "make", 60_000) for i in range(200)))
        results = [connect(unix_address).futures.make(i).result(10) for i in range(20)]
        answers = read_answers(sock, 200)

    assert [len(result) for result in results] == list(range(20))
    assert sorted(answers) == [(framing.RESULT, i) for i in range(200)]


@pytest.mark.parametrize("first", [0, 1, 100])
def test_a_server_that_stops_begins_nothing_it_has_read(serve, unix_address, first: int) -> None:
    """Each call is answered: with a result, or by saying that it has not run."""
    ran: list[int] = []
    reached = threading.Event()

    def work(i: int) -> None:
        ran.append(i)
        while i > first and not server._core.is_stopping:
            reached.set()

    server = serve(unix_address, work=work)
    with greeted(unix_address) as sock:
        sock.sendall(b"".join(call(i, "work", i) for i in range(1, 2001)))
        assert reached.wait(10)
        stopping = in_background(server.stop, 20.0)
        answers = read_answers(sock, 2002)
        stopping.result(30)

    assert {i for kind, i in answers if kind == framing.RESULT} == set(ran)
    not_run = {i for kind, i in answers if kind == framing.NOT_RUN}
    assert not_run == set(range(2001)) - set(ran)  # 0 is the farewell
    assert len(ran) < 1000
