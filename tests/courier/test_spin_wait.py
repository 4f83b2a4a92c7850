"""Waiting awake: the same as waiting, but sooner."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from launchpad.courier import caller
from launchpad.courier.caller import Peer
from launchpad.courier.transport import spin_wait
from launchpad.courier.transport.spin_wait import SpinWaiter
from launchpad.courier.transport.stream_socket import NO_SIGNAL, set_receive_timeout
from tests.courier.conftest import in_background


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        set_receive_timeout(ours, 0.01)
        yield ours, theirs


class Wrapped:
    """A socket of another kind."""

    def __init__(self, sock: socket.socket) -> None:
        self.raw = sock
        self.has_pending = False
        self.fileno = sock.fileno

    def recv_into(self, buffer: Any) -> int:
        if self.has_pending:
            buffer[:4] = b"kept"
            return 4
        n = self.raw.recv_into(buffer)
        buffer[:n] = bytes(buffer[:n]).upper()
        return n

    def pending(self) -> bool:
        return self.has_pending


def receive(waiter: SpinWaiter) -> bytes:
    buffer = memoryview(bytearray(16))
    n = waiter.receive(buffer)
    return bytes(buffer[:n])


def test_what_arrives_within_the_limit_of_the_socket_is_received(pair) -> None:
    ours, theirs = pair
    set_receive_timeout(ours, 10)
    waiter = SpinWaiter(ours)

    theirs.send(b"hello")
    assert receive(waiter) == b"hello"
    for text in (b"late", b"later"):  # so late that it sleeps
        timer = threading.Timer(0.01, theirs.send, [text])
        timer.start()
        assert receive(waiter) == text
        timer.join()
    set_receive_timeout(ours, 0.01)
    with pytest.raises(BlockingIOError):
        receive(waiter)
    theirs.close()
    assert receive(waiter) == b""


def test_a_peer_that_is_gone_and_a_closed_socket_are_errors(pair) -> None:
    ours, theirs = pair
    waiter = SpinWaiter(ours)

    theirs.close()
    with pytest.raises(BrokenPipeError):
        waiter.send(b"x", NO_SIGNAL)
    ours.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        receive(waiter)
    with pytest.raises(OSError, match="Bad file descriptor"):
        waiter.send(b"x", NO_SIGNAL)


def test_a_send_waits_for_room(pair) -> None:
    ours, theirs = pair
    waiter = SpinWaiter(ours)
    sent = 0
    ours.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            sent += ours.send(bytes(4096))
    ours.setblocking(True)
    reader = threading.Timer(0.01, lambda: theirs.recv(sent, socket.MSG_WAITALL))
    reader.start()

    assert waiter.send(b"there is room now", NO_SIGNAL) == 17
    reader.join()


def test_who_has_looked_out_in_vain_sleeps_more_and_more_often_until_an_answer_comes(pair) -> None:
    ours, theirs = pair
    set_receive_timeout(ours, 1e-6)
    waiter = SpinWaiter(ours)
    looks = []
    for i in range(200):
        if not waiter._sleeps:
            looks.append(i)
        with pytest.raises(BlockingIOError):
            receive(waiter)

    assert looks == [0, 2, 6, 14, 30, 62, 126, 190]
    for _ in range(64):
        theirs.send(b"x")
        receive(waiter)
    assert not waiter._sleeps


def test_one_that_spins_for_long_lets_other_threads_run(pair) -> None:
    ours, theirs = pair
    waiter = SpinWaiter(ours, window_s=10.0)
    spinning = threading.Thread(target=receive, args=(waiter,))
    usual_s = sys.getswitchinterval()

    sys.setswitchinterval(60.0)  # none loses the interpreter: they only let go of it
    try:
        spinning.start()
        theirs.send(b"x")
        spinning.join()
    finally:
        sys.setswitchinterval(usual_s)

    assert not waiter._sleeps  # it saw the answer while it spun


def test_one_that_is_answered_at_once_lets_others_run_without_sleeping(pair, monkeypatch) -> None:
    ours, theirs = pair
    monkeypatch.setattr(spin_wait, "_SHARE", 1e9)  # whatever other threads of this process compute
    monkeypatch.setattr(spin_wait, "_MAX_WASTED_S", 1e9)
    waiter, buffer = SpinWaiter(ours), memoryview(bytearray(16))
    slept, let_go = 0, 0
    for _ in range(10 * 128):
        slept += bool(waiter._sleeps)
        let_go += waiter._lets_go
        theirs.send(b"x")
        waiter.receive(buffer)

    assert not slept
    assert let_go == 9  # the tenth time is to come


def test_a_socket_of_another_kind_receives_for_itself(pair) -> None:
    ours, theirs = pair
    wrapped = Wrapped(ours)
    waiter = SpinWaiter(wrapped)  # type: ignore[arg-type]
    theirs.send(b"hello")

    assert receive(waiter) == b"HELLO"
    wrapped.has_pending = True
    assert receive(waiter) == b"kept"


def test_where_the_system_lacks_something_everybody_sleeps(pair, monkeypatch) -> None:
    ours, theirs = pair
    monkeypatch.setattr(spin_wait, "find_library", lambda **_: None)
    waiter = SpinWaiter(ours)
    theirs.send(b"hello")

    assert waiter._sleeps
    assert waiter.send(b"x", NO_SIGNAL) == 1
    assert receive(waiter) == b"hello"


@pytest.mark.parametrize(("other", "is_calm"), [("actor-0", True), ("actor-1", False)])
def test_a_server_looks_out_while_it_works_for_one_caller_only(
    serve, connect, unix_address, gate, monkeypatch, other, is_calm
) -> None:
    inside = threading.Event()
    server = serve(unix_address, block=lambda: inside.set() or gate.wait(20))
    server.bind("is_calm", lambda: server._core.pool.is_calm)
    monkeypatch.setattr(caller, "_provider", lambda: Peer("actor-0"))
    one, two = connect(unix_address), connect(unix_address)
    blocked = in_background(one.block)
    assert inside.wait(20)

    monkeypatch.setattr(caller, "_provider", lambda: Peer(other))

    assert two.is_calm() is is_calm
    gate.set()
    blocked.result(20)
