"""Large buffers that two processes of one host pass to each other in shared memory."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchpad.courier.errors import ProtocolError
from launchpad.courier.shm import receiver, segments
from launchpad.courier.shm.receiver import MappedSegments
from launchpad.courier.shm.sender import (
    IDLE_S,
    MAX_SEGMENTS,
    PeerSegments,
    SegmentLease,
    SegmentPool,
)
from tests.waiting import until

pytestmark = pytest.mark.skipif(not segments.IS_SUPPORTED, reason="shared memory needs Linux")

REPOSITORY = Path(__file__).parent.parent.parent
MB = 1 << 20


class Pair:
    """The two ends of one connection, for which this process is both sender and receiver."""

    def __init__(self, pool: SegmentPool) -> None:
        self.pool = pool
        self.peer_segments = PeerSegments(pool)
        self.mappings = MappedSegments()
        self.n_fds_sent = 0

    def send(self, *arrays: np.ndarray) -> list[np.ndarray]:
        lease = self.store(*arrays)
        try:
            return self.deliver(lease)
        finally:
            lease.release()

    def store(self, *arrays: np.ndarray) -> SegmentLease:
        lease = self.pool.store([memoryview(array).cast("B") for array in arrays])
        assert lease is not None
        return lease

    def deliver(self, lease: SegmentLease) -> list[np.ndarray]:
        descriptor, fd = self.peer_segments.describe(lease)
        self.n_fds_sent += fd is not None
        if fd is not None:
            self.mappings.take(os.dup(fd))
        received = self.mappings.receive(descriptor, lease.lengths)
        return [np.frombuffer(view, np.uint8) for view in received]

    def close(self) -> None:
        self.peer_segments.close()
        self.mappings.close()


@pytest.fixture
def connect_pair() -> Iterator[Callable[[SegmentPool], Pair]]:
    assert_nothing_is_left()  # of an earlier test: leases are counted over the whole process
    pairs: list[Pair] = []

    def make(pool: SegmentPool) -> Pair:
        pairs.append(Pair(pool))
        return pairs[-1]

    yield make
    for pair in pairs:
        pair.close()
    assert_nothing_is_left()


@pytest.fixture
def pool() -> SegmentPool:
    return SegmentPool()


@pytest.fixture
def pair(connect_pair: Callable[[SegmentPool], Pair], pool: SegmentPool) -> Pair:
    return connect_pair(pool)


def assert_nothing_is_left() -> None:
    gc.collect()
    until(lambda: n_mapped() == n_open() == 0)


def n_mapped(pid: int | str = "self") -> int:
    """Mappings of segments in a process."""
    return Path(f"/proc/{pid}/maps").read_text().count("memfd:courier")


def n_open(pid: int | str = "self") -> int:
    """Descriptors of segments in a process."""
    return sum("memfd:courier" in link for link in _links(pid))


def _links(pid: int | str) -> Iterator[str]:
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            yield os.readlink(f"/proc/{pid}/fd/{fd}")
        except FileNotFoundError:
            continue  # the one that lists them


def n_bytes(fd: int) -> int:
    """What a file in memory occupies."""
    return os.fstat(fd).st_blocks * 512


def numbers(n: int, first: int = 0) -> np.ndarray:
    return (np.arange(n) + first).astype(np.uint8)


# What arrives.


@pytest.mark.parametrize("lengths", [[1], [MB], [3 * MB + 1], [0], [5, 0, 2 * MB, 64, 70_000], []])
def test_buffers_arrive_as_they_were_sent(pair, lengths) -> None:
    sent = [numbers(n, first=i) for i, n in enumerate(lengths)]

    received = pair.send(*sent)

    assert [array.tolist() for array in received] == [array.tolist() for array in sent]
    assert all(array.flags.writeable for array in received)


def test_a_longer_message_in_a_segment_that_was_used_arrives_whole(pair) -> None:
    for n in (MB + 10, MB + 5_000, 2 * MB - 1, MB + 1):
        (received,) = pair.send(sent := numbers(n, first=n))
        assert np.array_equal(received, sent)
        del received

    assert pair.n_fds_sent == 1


def test_an_array_of_many_types_survives_with_pickle(pair) -> None:
    value = {"a": np.arange(300_000, dtype=np.float32).reshape(3, -1), "b": np.ones(9, np.int16)}
    buffers: list[pickle.PickleBuffer] = []
    body = pickle.dumps(value, 5, buffer_callback=buffers.append)
    lease = pair.pool.store([buffer.raw() for buffer in buffers])
    descriptor, fd = pair.peer_segments.describe(lease)

    pair.mappings.take(os.dup(fd))
    views = pair.mappings.receive(descriptor, lease.lengths)
    lease.release()
    received = pickle.loads(body, buffers=views)
    views.clear()
    received["a"] += 1  # writable, and alive without the views

    assert np.array_equal(received["a"], value["a"] + 1)
    assert np.array_equal(received["b"], value["b"])


def test_read_only_buffers_can_be_sent_twice(pair) -> None:
    """The second time by a copy of ours, which needs their address."""
    sent = numbers(2 * MB)
    sent.flags.writeable = False

    for _ in range(3):
        (received,) = pair.send(sent)
        assert np.array_equal(received, sent)
        del received


def test_what_the_receiver_writes_is_its_own(pair) -> None:
    sent = numbers(MB)

    (received,) = pair.send(sent)
    received[:] = 7

    assert np.array_equal(sent, numbers(MB))


def test_arrays_that_are_alive_are_not_written_to_by_later_messages(pair) -> None:
    kept = [pair.send(numbers(MB, first=i))[0] for i in range(10)]

    assert all(np.array_equal(array, numbers(MB, first=i)) for i, array in enumerate(kept))


# When a segment is used again.


def test_a_segment_is_used_again_when_its_arrays_have_died(pair) -> None:
    for i in range(10):
        (received,) = pair.send(numbers(MB, first=i))
        del received

    assert pair.n_fds_sent == n_open() == 1


def test_a_slice_keeps_its_segment_from_being_used_again(pair) -> None:
    (received,) = pair.send(numbers(MB))
    part = received[1000:2000][::2]
    del received

    pair.send(numbers(MB, first=1))

    assert np.array_equal(part, numbers(2000)[1000::2])
    assert pair.n_fds_sent == 2


def test_one_buffer_of_a_message_keeps_the_segment_for_all(pair) -> None:
    first, second = pair.send(numbers(MB), numbers(10))
    del first

    pair.send(numbers(MB, first=1))

    assert np.array_equal(second, numbers(10))


def test_a_lease_that_is_held_is_not_written_over(pair) -> None:
    lease = pair.store(numbers(MB))
    pair.deliver(lease)

    pair.send(numbers(MB, first=1))
    (received,) = pair.deliver(lease)  # as after a lost connection
    lease.release()

    assert np.array_equal(received, numbers(MB))


def test_the_end_of_an_earlier_delivery_does_not_free_a_later_one(pair) -> None:
    lease = pair.store(numbers(MB))
    (early,) = pair.deliver(lease)
    (late,) = pair.deliver(lease)
    lease.release()
    del early

    pair.send(numbers(MB, first=1))

    assert np.array_equal(late, numbers(MB))


def test_a_lease_released_twice_ends_once(pair) -> None:
    lease = pair.store(numbers(MB))
    lease.release()
    other = pair.store(numbers(MB, first=1))  # the same segment
    lease.release()

    pair.send(numbers(MB, first=2))
    (received,) = pair.deliver(other)
    other.release()

    assert np.array_equal(received, numbers(MB, first=1))


def test_connections_of_two_processes_share_one_mapping(connect_pair, pool) -> None:
    first, second = connect_pair(pool), connect_pair(pool)

    for pair in (first, second, first, second):
        pair.send(numbers(MB))

    assert (first.n_fds_sent, second.n_fds_sent) == (1, 1)
    assert n_mapped() == 2  # the sender's and the receiver's


def test_ten_thousand_messages_leave_nothing_behind(pair) -> None:
    sent = [numbers(n) for n in (200_000, MB, 2 * MB + 1)]
    for array in sent:
        pair.send(array)
    before = n_open(), n_mapped()

    for i in range(10_000):
        pair.send(sent[i % 3][: 200_000 + i])

    assert (n_open(), n_mapped()) == before


def test_threads_that_send_at_once_do_not_mix_their_buffers(connect_pair, pool) -> None:
    wrong: list[int] = []

    def run(me: int) -> None:
        pair = connect_pair(pool)
        for i in range(50):
            (received,) = pair.send(sent := numbers(300_000 + i, first=me * 50 + i))
            if not np.array_equal(received, sent):
                wrong.append(me)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


# Limits, after which the socket has to do.


def test_who_keeps_all_that_arrives_gets_copies_after_a_while(pair) -> None:
    kept = [pair.send(numbers(MB, first=i))[0] for i in range(receiver.MAX_LEASES + 20)]

    assert all(np.array_equal(array, numbers(MB, first=i)) for i, array in enumerate(kept))
    assert n_open() == receiver.MAX_LEASES + 1


def test_nothing_is_leased_beyond_the_limit(connect_pair) -> None:
    pair = connect_pair(SegmentPool(max_bytes=4 * MB))
    kept = pair.send(numbers(2 * MB))

    assert pair.pool.store([memoryview(numbers(3 * MB))]) is None
    assert pair.pool.store([memoryview(numbers(5 * MB))]) is None
    kept.clear()
    assert pair.send(numbers(3 * MB))  # the free segment made room
    assert n_open() == 1


def test_the_number_of_segments_is_limited(pair) -> None:
    held = [pair.store(numbers(1)) for _ in range(MAX_SEGMENTS)]

    assert pair.pool.store([memoryview(numbers(1))]) is None
    for lease in held:
        lease.release()


@pytest.mark.parametrize("limit", ["RLIMIT_FSIZE, (4096, 4096)", "RLIMIT_NOFILE, (3, 3)"])
def test_nothing_is_leased_where_the_system_has_no_room(python, limit) -> None:
    source = f"""
import resource, sys, threading; sys.path.insert(0, {str(REPOSITORY)!r})
from launchpad.courier.shm.sender import pool
resource.setrlimit(resource.{limit})
print(pool.store([memoryview(bytes(1 << 20))]), threading.active_count())
"""

    with python(source) as process:
        output, _ = process.communicate(timeout=20)

    assert output == "None 1\n"


# What an idle segment becomes.


def test_a_segment_that_was_idle_gives_its_memory_back(pair, later) -> None:
    pair.send(numbers(MB))
    lease = pair.store(numbers(MB))
    fd = os.dup(lease.segment.fd)
    lease.release()
    del lease
    assert n_bytes(fd) > MB

    has_more = pair.pool.check(later)

    assert not has_more
    assert n_bytes(fd) <= 4096  # although it is still mapped by the receiver
    assert not pair.mappings.check(later)
    assert n_mapped() == 0
    os.close(fd)


def test_a_segment_that_was_kept_for_long_becomes_the_receivers(pair, later) -> None:
    lease = pair.store(numbers(MB))
    fd = os.dup(lease.segment.fd)
    (received,) = pair.deliver(lease)
    lease.release()
    del lease

    pair.pool.check(later)
    still_mapped = pair.mappings.check(later)

    assert still_mapped
    assert np.array_equal(received, numbers(MB))
    del received
    assert n_bytes(fd) <= 4096
    assert not pair.mappings.check(later)
    os.close(fd)


def test_a_lease_that_is_held_is_not_idle(pair, later) -> None:
    lease = pair.store(numbers(MB))

    pair.pool.check(later)
    (received,) = pair.deliver(lease)
    lease.release()

    assert np.array_equal(received, numbers(MB))


def test_memory_comes_back_without_anybody_asking(connect_pair, pool, monkeypatch) -> None:
    monkeypatch.setattr("launchpad.courier.shm.sender.IDLE_S", 0.0)
    pair = connect_pair(pool)
    pair.send(numbers(MB))

    assert_nothing_is_left()


@pytest.fixture
def later() -> float:
    """When segments used now have become idle."""
    import time

    return time.monotonic() + IDLE_S + 1


# Connections and processes that end.


def test_arrays_outlive_the_connection(pair) -> None:
    (received,) = pair.send(numbers(MB))

    pair.close()
    until(lambda: n_open() == 0)

    assert np.array_equal(received, numbers(MB))
    received[0] = 1


def test_a_closed_connection_leaves_the_segments_of_others(connect_pair, pool) -> None:
    first, second = connect_pair(pool), connect_pair(pool)
    (kept,) = second.send(numbers(MB))
    first.send(numbers(MB, first=1))

    first.close()
    until(lambda: n_open() == 2)
    second.send(numbers(MB, first=2))
    second.send(numbers(MB, first=3))

    assert np.array_equal(kept, numbers(MB))
    assert second.n_fds_sent == 2


def test_a_lease_outlives_the_connection_it_was_first_sent_on(connect_pair, pool) -> None:
    first, second = connect_pair(pool), connect_pair(pool)
    lease = first.store(numbers(MB))
    first.peer_segments.describe(lease)  # it does not arrive
    first.close()

    (received,) = second.deliver(lease)
    lease.release()

    assert np.array_equal(received, numbers(MB))


CHILD = """
import os, pickle, socket, struct, sys, time; sys.path.insert(0, {repository!r})
import numpy as np
from launchpad.courier.shm.receiver import MappedSegments
from launchpad.courier.shm.sender import PeerSegments, pool

sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
sock.connect({path!r})
peer_segments, mappings = PeerSegments(pool), MappedSegments()

def send(array):
    lease = pool.store([memoryview(array).cast("B")])
    descriptor, fd = peer_segments.describe(lease)
    lease.release()
    socket.send_fds(sock, [descriptor + struct.pack("<Q", array.nbytes)], [] if fd is None else [fd])

def receive():
    data, fds, _, _ = socket.recv_fds(sock, 32, 1)
    (n,) = struct.unpack("<Q", data[24:])
    for fd in fds:
        mappings.take(fd)
    (view,) = mappings.receive(data[:24], [n])
    return np.frombuffer(view, np.uint8)
"""


class Other:
    """A process with a connection to this one, that passes arrays both ways."""

    def __init__(self, sock: socket.socket, process) -> None:
        self._sock = sock
        self.process = process
        self.peer_segments = PeerSegments(pool := SegmentPool())
        self.pool = pool
        self.mappings = MappedSegments(self._is_gone)

    def send(self, array: np.ndarray) -> None:
        lease = self.pool.store([memoryview(array).cast("B")])
        assert lease is not None
        descriptor, fd = self.peer_segments.describe(lease)
        lease.release()
        message = descriptor + struct.pack("<Q", array.nbytes)
        socket.send_fds(self._sock, [message], [] if fd is None else [fd])

    def receive(self) -> np.ndarray:
        data, fds, _, _ = socket.recv_fds(self._sock, 32, 1)
        (n,) = struct.unpack("<Q", data[24:])
        for fd in fds:
            self.mappings.take(fd)
        (view,) = self.mappings.receive(data[:24], [n])
        return np.frombuffer(view, np.uint8)

    def read_line(self) -> str:
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.peer_segments.close()
        self.mappings.close()
        self._sock.close()

    def _is_gone(self) -> bool:
        return self.process.poll() is not None


@pytest.fixture
def run_other(python, short_directory) -> Iterator[Callable[[str], Other]]:
    """Starts a process with `send` and `receive`, connected to this one."""
    with contextlib.ExitStack() as stack:

        def run(source: str) -> Other:
            path = str(short_directory / "s")
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
                listener.bind(path)
                listener.listen()
                head = CHILD.format(repository=str(REPOSITORY), path=path)
                process = stack.enter_context(python(head + source))
                sock, _ = listener.accept()
            other = Other(sock, process)
            stack.callback(other.close)
            return other

        yield run
    assert_nothing_is_left()


ECHO = """
while True:
    send(receive().copy())
"""
KEEP = """
kept = []
while True:
    kept.append(receive())
    print(len(kept), flush=True)
"""


def test_arrays_go_from_process_to_process_and_back(run_other) -> None:
    other = run_other(ECHO)

    for i in range(20):
        other.send(numbers(MB - i, first=i))
        assert np.array_equal(other.receive(), numbers(MB - i, first=i))

    assert n_open() == n_open(other.process.pid) == 1
    assert n_mapped() == n_mapped(other.process.pid) == 2


def test_nothing_is_left_of_a_receiver_that_was_killed_with_arrays(run_other) -> None:
    other = run_other(KEEP)
    for i in range(3):
        other.send(numbers(MB))
        assert other.read_line() == str(i + 1)
    with contextlib.ExitStack() as closing:
        fds = [os.dup(segment.fd) for segment in other.pool._segments]
        for fd in fds:
            closing.callback(os.close, fd)

        other.kill()
        other.peer_segments.close()
        until(lambda: (n_open(), n_mapped()) == (3, 0))  # those of this test

        assert len(fds) == 3
        assert all(os.fstat(fd).st_nlink == 0 for fd in fds)  # gone with them, says the kernel


def test_arrays_outlive_a_sender_that_was_killed(run_other) -> None:
    other = run_other("send(np.arange(1 << 20).astype(np.uint8)); time.sleep(60)")
    received = other.receive()

    other.kill()

    assert np.array_equal(received, numbers(MB))
    received[:] = 1
    assert n_mapped() == 1
    del received
    until(lambda: n_mapped() == 0)  # though nobody calls or closes


def test_a_fork_of_the_receiver_has_arrays_of_its_own(run_other) -> None:
    """And the sender may use the segment again, whatever the child still has."""
    other = run_other(
        """
array = receive()
r, w = os.pipe()
pid = os.fork()
if pid == 0:
    os.read(r, 1)  # until the parent has written
    assert array[5] == 5, array[5]
    array[6] = 77
    print("child", array[5], array[6], array.sum(), flush=True)
    os._exit(0)
array[5] = 55
del array
second = receive()
os.write(w, b"x")
os.waitpid(pid, 0)
print("parent", second[5], second[6], flush=True)
time.sleep(60)
"""
    )
    other.send(numbers(MB))
    until(lambda: other.pool._segments[0].is_free)  # given back by the fork

    other.send(numbers(MB, first=1))

    assert n_open() == 1
    total = int(numbers(MB).astype(np.uint64).sum()) + 71
    assert other.read_line() == f"child 5 77 {total}"
    assert other.read_line() == "parent 6 7"


def test_what_the_parent_keeps_over_a_fork_stays_its_own(run_other) -> None:
    other = run_other(
        """
array = receive()
pid = os.fork()
if pid == 0:
    array[:] = 9
    del array
    os._exit(0)
os.waitpid(pid, 0)
print(array[5], array[6], flush=True)
array = receive()
print(array[5], flush=True)
time.sleep(60)
"""
    )

    other.send(numbers(MB))
    assert other.read_line() == "5 6"
    other.send(numbers(MB, first=1))
    assert other.read_line() == "6"


def test_a_fork_of_the_sender_has_no_part_in_its_segments(pair) -> None:
    pair.send(numbers(MB))
    pid = os.fork()
    if pid == 0:
        os._exit(n_open() + n_mapped())

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert n_open() == 1
    pair.send(numbers(MB))


# What a peer may not do.


@pytest.mark.parametrize(
    "descriptor",
    [
        b"",
        bytes(23),
        bytes(25),
        struct.pack("<QQQ", 1, 1, 2),
        struct.pack("<QQQ", 99, 1, 0),
        struct.pack("<QQQ", 1, 1, 0),
    ],
)
def test_a_descriptor_that_is_none_is_refused(descriptor) -> None:
    with pytest.raises(ProtocolError):
        MappedSegments().receive(descriptor, [10])


@pytest.mark.parametrize("lengths", [[MB + 1], [2**64 - 1], [MB, 1], [2**63, 2**63]])
def test_buffers_outside_of_the_segment_are_refused(pair, lengths) -> None:
    lease = pair.store(numbers(MB))
    descriptor, fd = pair.peer_segments.describe(lease)
    lease.release()
    pair.mappings.take(os.dup(fd))

    with pytest.raises(ProtocolError, match="in a segment of"):
        pair.mappings.receive(descriptor, lengths)


def _regular_file() -> int:
    return os.open(__file__, os.O_RDONLY)


def _pipe() -> int:
    read, write = os.pipe()
    os.close(write)
    return read


def _unsealed() -> int:
    fd = os.memfd_create("courier", os.MFD_CLOEXEC)
    os.ftruncate(fd, MB)
    return fd


def _not_sealed_against_shrinking() -> int:
    fd = os.memfd_create("courier", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, MB)
    return fd


def _too_small() -> int:
    return segments.create_file(segments.HEADER_SIZE)


def _read_only() -> int:
    fd = segments.create_file(MB)
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    "make",
    [_regular_file, _pipe, _unsealed, _not_sealed_against_shrinking, _too_small, _read_only],
)
def test_a_file_that_is_no_segment_is_closed_and_counts_as_lost(make) -> None:
    fd = make()
    mappings = MappedSegments()

    mappings.take(fd)

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    with pytest.raises(OSError, match="could not be received"):
        mappings.receive(segments.DESCRIPTOR.pack(1, 1, True), [10])


def test_a_descriptor_that_comes_twice_changes_nothing(pair) -> None:
    first = pair.send(numbers(MB))
    pair.mappings.take(os.dup(pair.store(numbers(MB)).segment.fd))

    assert np.array_equal(first[0], numbers(MB))
    assert np.array_equal(pair.send(numbers(MB, first=1))[0], numbers(MB, first=1))


def test_another_segment_is_not_taken_for_one_that_got_lost(pair) -> None:
    lost, found = pair.store(numbers(MB)), pair.store(numbers(MB, first=1))
    (lost_descriptor, _), (descriptor, fd) = map(pair.peer_segments.describe, (lost, found))
    pair.mappings.take(os.dup(fd))

    with pytest.raises(OSError, match="could not be received"):
        pair.mappings.receive(lost_descriptor, lost.lengths)
    (view,) = pair.mappings.receive(descriptor, found.lengths)
    assert np.array_equal(np.frombuffer(view, np.uint8), numbers(MB, first=1))


def test_a_descriptor_that_got_lost_costs_the_message_and_not_the_connection(pair) -> None:
    lease = pair.store(numbers(MB))
    descriptor, _ = pair.peer_segments.describe(lease)
    lease.release()

    with pytest.raises(OSError, match="could not be received"):
        pair.mappings.receive(descriptor, lease.lengths)
    with pytest.raises(OSError, match="could not be received"):
        pair.mappings.receive(pair.peer_segments.describe(lease)[0], lease.lengths)


@given(
    descriptor=st.binary(max_size=30)
    | st.builds(
        struct.pack, st.just("<QQQ"), st.integers(0, 2), st.integers(0, 9), st.integers(0, 2)
    ),
    lengths=st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 4096), max_size=5),
    comes_with_fd=st.booleans(),
)
def test_whatever_a_peer_says_nothing_breaks(descriptor, lengths, comes_with_fd) -> None:
    mappings = MappedSegments()
    if comes_with_fd:
        mappings.take(segments.create_file(MB))

    try:
        views = mappings.receive(descriptor, lengths)
        assert [len(view) for view in views] == lengths
        views.clear()
    except (ProtocolError, OSError):
        pass
    mappings.close()

    assert n_open() == 0
