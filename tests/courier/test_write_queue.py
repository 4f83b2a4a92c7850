"""Frames on their way out: in order, whole, and known to be sent or not."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from functools import partial

import pytest

from launchpad.courier.protocol.framing import Chunk
from launchpad.courier.transport import stream_socket
from launchpad.courier.transport.write_queue import WriteQueue
from tests.courier.conftest import in_background

Pair = tuple[socket.socket, socket.socket]


class Frame:
    """One that knows whether it was sent."""

    def __init__(self, frame: bytes | Sequence[Chunk]) -> None:
        self.frame = frame
        self.is_sent = False


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(10)
    with ours, theirs:
        yield ours, theirs


def make(*frames: bytes | list[bytes]) -> tuple[WriteQueue, list[Frame]]:
    queue = WriteQueue()
    tracked = [Frame(frame) for frame in frames]
    for frame in tracked:
        queue.put(frame)
    return queue, tracked


def read(sock: socket.socket, n: int) -> bytes:
    return stream_socket.receive_exactly(sock, n)


def test_what_waits_for_a_connection_is_sent_unless_it_has_been_cleared(pair: Pair) -> None:
    ours, theirs = pair
    queue, tracked = make(b"one", b"two", [b"th", b"ree"], b"four")

    queue.flush()
    before = [frame.is_sent for frame in tracked]
    tracked[0].frame = tracked[2].frame = b""
    queue.connect(ours)
    queue.flush()

    assert before == [False] * 4
    assert read(theirs, 7) == b"twofour"
    assert all(frame.is_sent for frame in tracked)
    assert len(queue) == 0


def test_small_and_large_frames_keep_their_order(pair: Pair) -> None:
    ours, theirs = pair
    parts = [b"a" * 10, [b"b" * 10, b"c" * 300_000, b""], b"d", [b"e"] * 1500, b"f" * 70_000] * 3
    queue, _ = make(*parts)
    queue.connect(ours)
    sent = b"".join(part if isinstance(part, bytes) else b"".join(part) for part in parts)

    writing = in_background(queue.flush)
    received = read(theirs, len(sent))
    writing.result(10)

    assert received == sent


@pytest.mark.parametrize("flush", [partial(WriteQueue.flush, wait=False), WriteQueue.flush_all])
def test_a_socket_that_takes_no_more_is_left_until_it_does(pair: Pair, flush) -> None:
    ours, theirs = pair
    queue = WriteQueue(ours)
    data = bytes(range(256)) * 40_000
    queue.put_chunks([b"head", memoryview(data)])

    has_written = flush(queue)
    received = bytearray()
    while len(received) < len(data) + 4:
        received += theirs.recv(1 << 20)
        flush(queue)

    assert not has_written
    assert received == b"head" + data
    assert flush(queue)
    assert queue.close()


def test_what_was_not_written_in_full_goes_out_whole_over_the_next_connection(pair: Pair) -> None:
    ours, _ = pair
    queue, tracked = make(b"first", bytes(40_000), bytes(1 << 20), b"last")
    queue.connect(ours)

    queue.flush(wait=False)
    begun = [frame.is_sent for frame in tracked]
    queue.disconnect()
    after = [frame.is_sent for frame in tracked]
    new_ours, new_theirs = socket.socketpair()
    new_theirs.settimeout(10)
    with new_ours, new_theirs:
        queue.connect(new_ours)
        writing = in_background(queue.flush)
        received = read(new_theirs, (1 << 20) + 4)
        writing.result(10)

    assert begun[:3] == [True, True, True]
    assert after == [True, True, False, False]
    assert received == bytes(1 << 20) + b"last"


def test_a_connection_that_has_ended_takes_nothing_with_it(pair: Pair) -> None:
    ours, theirs = pair
    queue, tracked = make(b"one", b"two")
    queue.connect(ours)
    theirs.close()

    with pytest.raises(OSError, match="Broken pipe"):
        queue.flush()
    was_connected = queue.is_connected
    queue.disconnect()

    assert not was_connected
    assert not queue.has_written
    assert [frame.is_sent for frame in tracked] == [False, False]
    assert len(queue) == 2


def flush_patiently(queue: WriteQueue) -> None:
    while not queue.flush_all():
        queue.wait_until_writable(1.0)


@pytest.mark.parametrize("flush", [WriteQueue.flush, flush_patiently])
def test_frames_of_many_threads_are_neither_lost_nor_repeated_nor_mixed(pair: Pair, flush) -> None:
    ours, theirs = pair
    queue = WriteQueue(ours)

    def write(mark: int) -> None:
        for i in range(200):
            queue.put_chunks([b"%d%03d" % (mark, i), memoryview(b"%d" % mark * 9996)])
            flush(queue)

    threads = [in_background(write, mark) for mark in range(4)]
    numbers: list[list[int]] = [[], [], [], []]
    for _ in range(800):
        frame = read(theirs, 10_000)
        mark = frame[:1]
        assert frame[4:] == mark * 9996
        numbers[int(mark)].append(int(frame[1:4]))
    for thread in threads:
        thread.result(10)

    assert numbers == [list(range(200))] * 4


def test_a_closed_queue_writes_nothing_and_says_whether_something_was_left(pair: Pair) -> None:
    ours, theirs = pair
    queue = WriteQueue(ours)
    queue.put_chunks([b"never"])

    assert not queue.close()
    queue.put_chunks([b"nor this"])
    assert queue.flush_all()
    theirs.setblocking(False)
    with pytest.raises(BlockingIOError):
        theirs.recv(1)


def test_a_thread_waits_when_too_much_is_waiting_already(pair: Pair) -> None:
    ours, theirs = pair
    queue = WriteQueue(ours, most_bytes=1000)
    queue.put(bytes(1 << 20))
    first_writes = in_background(queue.flush)
    first = read(theirs, 1)  # the first one writes, and the socket takes no more

    queue.put(b"little")
    queue.flush()
    queue.put(bytes(1000))
    second_waits = in_background(queue.flush)
    with pytest.raises(TimeoutError):
        second_waits.result(0.2)
    received = first + read(theirs, (1 << 20) + 6 + 1000 - 1)
    for writing in (first_writes, second_waits):
        writing.result(10)

    assert received == bytes(1 << 20) + b"little" + bytes(1000)


def test_the_last_write_is_all_that_is_left_unless_the_peer_has_gone(pair: Pair) -> None:
    ours, theirs = pair
    queue, to_nobody = WriteQueue(ours), WriteQueue(ours)
    queue.put(b"last")

    assert queue.close(is_last_write=True)
    queue.put(b"too late")
    queue.flush()
    assert theirs.recv(100) == b"last"
    theirs.setblocking(False)
    with pytest.raises(BlockingIOError):
        theirs.recv(100)

    theirs.close()
    to_nobody.put(b"last")
    assert not to_nobody.close(is_last_write=True)
