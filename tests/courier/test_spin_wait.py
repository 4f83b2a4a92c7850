"""Waiting awake: the same as waiting, but sooner."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from launchpad import courier
from launchpad.courier import caller
from launchpad.courier.caller import Peer
from launchpad.courier.transport import spin_wait
from launchpad.courier.transport.spin_wait import SpinWaiter
from launchpad.courier.transport.stream_socket import NO_SIGNAL, set_receive_timeout


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
        self.send = sock.send

    def recv_into(self, buffer: Any) -> int:
        if self.has_pending:
            buffer[:4] = b"kept"
            return 4
        n = self.raw.recv_into(buffer)
        buffer[:n] = bytes(buffer[:n]).upper()
        return n

    def pending(self) -> bool:
        return self.has_pending


def test_what_has_arrived_is_received(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    buffer = memoryview(bytearray(16))
    theirs.send(b"hello")

    assert SpinWaiter(ours).receive(buffer) == 5
    assert buffer[:5] == b"hello"


def test_what_arrives_while_it_sleeps_is_received(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    set_receive_timeout(ours, 10)
    buffer = memoryview(bytearray(16))
    watching = SpinWaiter(ours)
    for _ in range(3):
        timer = threading.Timer(0.01, theirs.send, [b"late"])
        timer.start()
        assert watching.receive(buffer) == 4
        timer.join()


def test_the_end_of_the_stream_is_seen(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.close()

    assert SpinWaiter(ours).receive(memoryview(bytearray(16))) == 0


def test_the_limit_of_the_socket_holds(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, _ = pair

    with pytest.raises(BlockingIOError):
        SpinWaiter(ours).receive(memoryview(bytearray(16)))


def test_a_closed_socket_is_an_error(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, _ = pair
    watching = SpinWaiter(ours)
    ours.close()

    with pytest.raises(OSError, match="Bad file descriptor"):
        watching.receive(memoryview(bytearray(16)))
    with pytest.raises(OSError, match="Bad file descriptor"):
        watching.send(b"x", NO_SIGNAL)


def test_a_peer_that_is_gone_is_an_error_to_who_sends(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    theirs.close()

    with pytest.raises(BrokenPipeError):
        SpinWaiter(ours).send(b"x", NO_SIGNAL)


def test_a_send_waits_for_room(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    watching = SpinWaiter(ours)
    sent = 0
    ours.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            sent += ours.send(bytes(4096))
    ours.setblocking(True)
    reader = threading.Timer(0.01, lambda: theirs.recv(sent, socket.MSG_WAITALL))
    reader.start()

    assert watching.send(b"there is room now", NO_SIGNAL) == 17
    reader.join()


def test_who_has_looked_out_in_vain_sleeps_more_and_more_often(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, _ = pair
    set_receive_timeout(ours, 1e-6)
    watching, buffer = SpinWaiter(ours), memoryview(bytearray(16))
    looks = []
    for i in range(200):
        if not watching._sleeps:
            looks.append(i)
        with pytest.raises(BlockingIOError):
            watching.receive(buffer)

    assert looks == [0, 2, 6, 14, 30, 62, 126, 190]


def test_an_answer_seen_at_once_wakes_it_up(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    watching, buffer = SpinWaiter(ours), memoryview(bytearray(16))
    for _ in range(10):
        with pytest.raises(BlockingIOError):
            watching.receive(buffer)
    for _ in range(10):
        theirs.send(b"x")
        watching.receive(buffer)

    assert not watching._sleeps


def test_one_that_spins_for_long_lets_other_threads_run(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    watching = SpinWaiter(ours, window_s=10.0)
    spinning = threading.Thread(target=watching.receive, args=(memoryview(bytearray(16)),))
    usual_s = sys.getswitchinterval()

    sys.setswitchinterval(60.0)  # none loses the interpreter: they only let go of it
    try:
        spinning.start()
        theirs.send(b"x")
        spinning.join()
    finally:
        sys.setswitchinterval(usual_s)

    assert not watching._sleeps  # it saw the answer while it spun


def test_one_that_is_answered_at_once_for_long_lets_other_threads_run_without_sleeping(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = pair
    monkeypatch.setattr(spin_wait, "_SHARE", 1e9)  # whatever other threads of this process compute
    monkeypatch.setattr(spin_wait, "_MAX_WASTED_S", 1e9)
    watching, buffer = SpinWaiter(ours), memoryview(bytearray(16))
    slept, let_go = 0, 0
    for _ in range(10 * 128):
        slept += bool(watching._sleeps)
        let_go += watching._lets_go
        theirs.send(b"x")
        watching.receive(buffer)

    assert not slept
    assert let_go == 9  # the tenth time is to come


def test_another_buffer_is_filled_when_it_is_given(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    watching = SpinWaiter(ours)
    for text in (b"one", b"two"):
        buffer = memoryview(bytearray(3))
        theirs.send(text)
        watching.receive(buffer)
        assert buffer == text


def test_a_socket_of_another_kind_receives_for_itself(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    wrapped, buffer = Wrapped(ours), memoryview(bytearray(16))
    watching = SpinWaiter(wrapped)  # type: ignore[arg-type]
    theirs.send(b"hello")

    assert watching.receive(buffer) == 5
    assert buffer[:5] == b"HELLO"
    wrapped.has_pending = True
    assert watching.receive(buffer) == 4
    assert buffer[:4] == b"kept"


def test_where_the_system_lacks_something_everybody_sleeps(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = pair
    monkeypatch.setattr(spin_wait, "find_library", lambda **_: None)
    watching, buffer = SpinWaiter(ours), memoryview(bytearray(16))
    theirs.send(b"hello")

    assert watching._sleeps
    assert watching.send(b"x", NO_SIGNAL) == 1
    assert watching.receive(buffer) == 5


def test_threads_that_call_at_the_same_time_all_get_their_answers(unix_address: str) -> None:
    server = courier.Server("echo", address=unix_address)
    server.bind("echo", lambda value: value)
    server.start()
    wrong = []

    def call(me: int) -> None:
        for i in range(500):
            if client.echo((me, i)) != (me, i):
                wrong.append((me, i))

    with courier.Client(unix_address) as client:
        threads = [threading.Thread(target=call, args=(me,)) for me in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert client.echo(wrong) == []
    server.stop()


@pytest.mark.parametrize(("other", "is_calm"), [("actor-0", True), ("actor-1", False)])
def test_a_server_looks_out_while_it_works_for_one_caller_only(
    unix_address: str, monkeypatch: pytest.MonkeyPatch, other: str, is_calm: bool
) -> None:
    server = courier.Server("learner", address=unix_address)
    inside, may_end = threading.Event(), threading.Event()
    server.bind("block", lambda: inside.set() or may_end.wait(20))
    server.bind("is_calm", lambda: server._core.pool.is_calm)
    server.start()

    monkeypatch.setattr(caller, "_provider", lambda: Peer("actor-0"))
    with courier.Client(unix_address) as one, courier.Client(unix_address) as two:
        blocked = threading.Thread(target=one.block)
        blocked.start()
        assert inside.wait(20)
        monkeypatch.setattr(caller, "_provider", lambda: Peer(other))
        assert two.is_calm() is is_calm
        may_end.set()
        blocked.join()
    server.stop()
