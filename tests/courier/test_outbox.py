"""Frames on their way out: in order, whole, and known to be sent or not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from launchpad.courier.carriers import sockets
from launchpad.courier.clients.deadlines import Deadlines
from launchpad.courier.clients.outbox import Notice, Outbox

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(10)
    with ours, theirs:
        yield ours, theirs


def make(*frames: bytes | list[bytes]) -> tuple[Outbox, list[Notice]]:
    outbox = Outbox()
    notices = [Notice(b"") for _ in frames]
    for notice, frame in zip(notices, frames, strict=True):
        notice.frame = frame
        outbox.put(notice)
    return outbox, notices


def read(sock: socket.socket, n: int) -> bytes:
    return sockets.receive_exactly(sock, n)


def test_nothing_is_sent_before_there_is_a_connection(pair: Pair) -> None:
    ours, theirs = pair
    outbox, notices = make(b"one", b"two")

    outbox.flush()
    before = [notice.is_sent for notice in notices]
    outbox.connect(ours)
    outbox.flush()

    assert before == [False, False]
    assert read(theirs, 6) == b"onetwo"
    assert all(notice.is_sent for notice in notices)
    assert len(outbox) == 0


def test_small_and_large_frames_keep_their_order(pair: Pair) -> None:
    ours, theirs = pair
    parts = [b"a" * 10, [b"b" * 10, b"c" * 300_000, b""], b"d", [b"e"] * 1500, b"f" * 70_000] * 3
    outbox, _ = make(*parts)
    outbox.connect(ours)
    sent = b"".join(part if isinstance(part, bytes) else b"".join(part) for part in parts)

    writer = threading.Thread(target=outbox.flush)
    writer.start()
    received = read(theirs, len(sent))
    writer.join(10)

    assert received == sent


def test_what_has_been_cleared_is_not_sent(pair: Pair) -> None:
    ours, theirs = pair
    outbox, notices = make(b"one", b"two", [b"th", b"ree"], b"four")

    notices[0].frame = notices[2].frame = b""
    outbox.connect(ours)
    outbox.flush()

    assert read(theirs, 7) == b"twofour"


def test_a_socket_that_takes_no_more_is_left_until_it_does(pair: Pair) -> None:
    ours, theirs = pair
    size = 1 << 20
    outbox, _ = make(bytes(size), b"end")
    outbox.connect(ours)

    is_all = outbox.flush(wait=False)
    received = 0
    while not is_all:
        received += len(theirs.recv(size))
        is_all = outbox.flush(wait=False)
    rest = read(theirs, size + 3 - received)

    assert received > 0
    assert rest[-3:] == b"end"


def test_what_was_not_written_in_full_goes_out_whole_over_the_next_connection(pair: Pair) -> None:
    ours, _ = pair
    outbox, notices = make(b"first", bytes(40_000), bytes(1 << 20), b"last")
    outbox.connect(ours)

    outbox.flush(wait=False)
    begun = [notice.is_sent for notice in notices]
    outbox.disconnect()
    after = [notice.is_sent for notice in notices]
    new_ours, new_theirs = socket.socketpair()
    new_theirs.settimeout(10)
    with new_ours, new_theirs:
        outbox.connect(new_ours)
        writer = threading.Thread(target=outbox.flush)
        writer.start()
        received = read(new_theirs, (1 << 20) + 4)
        writer.join(10)

    assert begun[:3] == [True, True, True]
    assert after == [True, True, False, False]
    assert received == bytes(1 << 20) + b"last"


def test_a_connection_that_has_ended_takes_nothing_with_it(pair: Pair) -> None:
    ours, theirs = pair
    outbox, notices = make(b"one", b"two")
    outbox.connect(ours)
    theirs.close()

    outbox.flush()
    was_connected = outbox.is_connected
    outbox.disconnect()

    assert not was_connected
    assert not outbox.has_written
    assert [notice.is_sent for notice in notices] == [False, False]
    assert len(outbox) == 2


def test_many_threads_lose_and_repeat_nothing(pair: Pair) -> None:
    ours, theirs = pair
    outbox = Outbox()
    outbox.connect(ours)

    def work(k: int) -> None:
        for i in range(500):
            outbox.put(Notice(b"%d:%05d\n" % (k, i)))
            outbox.flush()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    lines = read(theirs, 2000 * 8).split(b"\n")[:-1]
    for thread in threads:
        thread.join(10)

    for k in range(4):
        assert [line for line in lines if line[:1] == b"%d" % k] == [
            b"%d:%05d" % (k, i) for i in range(500)
        ]


def test_deadlines_come_back_in_order_when_their_time_has_come() -> None:
    deadlines = Deadlines({1, 2, 3, 4})

    were_first = [deadlines.add(at, call) for at, call in [(5.0, 1), (3.0, 2), (4.0, 3), (2.0, 4)]]

    assert were_first == [True, True, False, True]
    assert deadlines.first() == 2.0
    assert deadlines.take_late(4.0) == [4, 2, 3]
    assert deadlines.take_late(4.0) == []
    assert deadlines.first() == 5.0


def test_deadlines_of_calls_that_are_done_are_not_kept() -> None:
    open_calls: set[int] = set()
    deadlines = Deadlines(open_calls)

    for call in range(100_000):
        open_calls.add(call)
        deadlines.add(float(call), call)
        open_calls.discard(call - 10)

    assert len(deadlines) < 2000
    assert set(deadlines.take_late(1e9)) >= open_calls
