"""Large buffers that two processes of one host pass to each other in shared memory.

Here one process has both ends; tests/courier/test_shm.py has two, which are killed, and fork.
"""

from __future__ import annotations

import errno
import gc
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from unittest import mock

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
from tests.courier.conftest import REPOSITORY, exit_code_of_child
from tests.courier.test_shm import n_mapped, n_open, numbers
from tests.waiting import until

pytestmark = pytest.mark.skipif(not segments.IS_SUPPORTED, reason="shared memory needs Linux")

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
def connect_pair() -> Iterator[Callable[..., Pair]]:
    assert_nothing_is_left()  # of an earlier test: leases are counted over the whole process
    pairs: list[Pair] = []

    def make(pool: SegmentPool | None = None) -> Pair:
        pairs.append(Pair(pool or SegmentPool()))
        return pairs[-1]

    yield make
    for pair in pairs:
        pair.close()
    assert_nothing_is_left()


@pytest.fixture
def pair(connect_pair: Callable[..., Pair]) -> Pair:
    return connect_pair()


def assert_nothing_is_left() -> None:
    gc.collect()
    until(lambda: n_mapped() == n_open() == 0)


def n_bytes(fd: int) -> int:
    """What a file in memory occupies."""
    return os.fstat(fd).st_blocks * 512


# What arrives.


@pytest.mark.parametrize("lengths", [[1], [3 * MB + 1], [0], [5, 0, 2 * MB, 64, 70_000], []])
def test_buffers_arrive_as_they_were_sent(pair, lengths) -> None:
    sent = [numbers(n, first=i) for i, n in enumerate(lengths)]

    received = pair.send(*sent)

    assert [array.tolist() for array in received] == [array.tolist() for array in sent]
    assert all(array.flags.writeable for array in received)
    for array in received:
        array[:] = 7
    assert all(np.array_equal(each, numbers(len(each), first=i)) for i, each in enumerate(sent))


def test_a_segment_is_used_again_when_its_arrays_have_died(pair) -> None:
    """Also for a longer message, and for read-only buffers: then it is we who copy, by their address."""
    for n in (MB + 10, MB + 5_000, 2 * MB - 1, MB + 1, MB + 1):
        sent = numbers(n, first=n)
        sent.flags.writeable = n % 2 == 0
        (received,) = pair.send(sent)
        assert np.array_equal(received, sent)
        del received

    assert pair.n_fds_sent == n_open() == 1


def test_a_segment_is_not_used_again_while_any_part_of_a_message_is_alive(pair) -> None:
    whole = [pair.send(numbers(MB, first=i))[0] for i in range(5)]
    part = pair.send(numbers(MB))[0][1000:2000][::2]
    _, second = pair.send(numbers(MB), numbers(10))
    del _

    for i in range(3):
        pair.send(numbers(MB, first=100 + i))

    assert all(np.array_equal(array, numbers(MB, first=i)) for i, array in enumerate(whole))
    assert np.array_equal(part, numbers(2000)[1000::2])
    assert np.array_equal(second, numbers(10))
    assert pair.n_fds_sent == 8


def test_a_lease_that_is_held_is_neither_written_over_nor_idle(pair, later) -> None:
    lease = pair.store(numbers(MB))
    pair.deliver(lease)

    pair.send(numbers(MB, first=1))
    pair.pool.check(later)
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


def test_connections_of_two_processes_share_one_mapping(connect_pair) -> None:
    first = connect_pair()
    second = connect_pair(first.pool)

    for pair in (first, second, first, second):
        pair.send(numbers(MB))

    assert (first.n_fds_sent, second.n_fds_sent) == (1, 1)
    assert n_mapped() == 2  # the sender's and the receiver's


# Limits, after which the socket has to do.


def test_who_keeps_all_that_arrives_gets_copies_after_a_while(pair) -> None:
    n = 300_000
    kept = [pair.send(numbers(n, first=i))[0] for i in range(receiver.MAX_LEASES + 20)]

    assert all(np.array_equal(array, numbers(n, first=i)) for i, array in enumerate(kept))
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


@pytest.fixture
def later() -> float:
    """When segments used now have become idle."""
    return time.monotonic() + IDLE_S + 1


@pytest.mark.parametrize("is_kept", [False, True])
def test_an_idle_segment_is_given_back_or_the_receivers(pair, later, is_kept) -> None:
    lease = pair.store(numbers(MB))
    fd = os.dup(lease.segment.fd)
    (received,) = pair.deliver(lease)
    lease.release()
    del lease
    if not is_kept:
        del received
    assert n_bytes(fd) > MB

    has_more = pair.pool.check(later)
    still_mapped = pair.mappings.check(later)
    if is_kept:
        assert np.array_equal(received, numbers(MB))
        del received

    assert (has_more, still_mapped) == (False, is_kept)
    assert n_bytes(fd) <= 4096
    assert not pair.mappings.check(later)
    assert n_mapped() == 0
    os.close(fd)


def test_memory_comes_back_without_anybody_asking(connect_pair, monkeypatch) -> None:
    monkeypatch.setattr("launchpad.courier.shm.sender.IDLE_S", 0.0)
    pair = connect_pair()
    pair.send(numbers(MB))

    assert_nothing_is_left()


# Connections that end, and processes that fork.


def test_arrays_outlive_the_connection_and_nothing_else_of_it(pair) -> None:
    (received,) = pair.send(numbers(MB))

    pair.close()
    until(lambda: n_open() == 0)

    assert np.array_equal(received, numbers(MB))
    received[0] = 1
    assert n_mapped() == 1
    del received
    until(lambda: n_mapped() == 0)  # though nobody calls or closes


def test_a_closed_connection_leaves_the_segments_and_leases_of_others(connect_pair) -> None:
    first = connect_pair()
    second = connect_pair(first.pool)
    (kept,) = second.send(numbers(MB))
    (orphan,) = first.send(numbers(MB, first=1))
    lease = first.store(numbers(MB, first=2))
    first.peer_segments.describe(lease)  # it does not arrive

    first.close()
    until(lambda: n_open() == 2)  # that of the orphan is the receiver's alone
    second.send(numbers(MB, first=3))
    (late,) = second.deliver(lease)
    lease.release()

    assert np.array_equal(kept, numbers(MB))
    assert np.array_equal(orphan, numbers(MB, first=1))
    assert np.array_equal(late, numbers(MB, first=2))


def test_parent_and_child_have_what_was_received_each_for_itself(pair) -> None:
    """And the sender may use the segment again when the parent lets go, whatever the child still has."""
    (received,) = pair.send(numbers(MB))
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.read(read_end, 1)  # until the parent has written
            if np.array_equal(received, numbers(MB)) and n_open() == 0:
                received[:] = 77
                os._exit(0)
        finally:
            os._exit(1)

    received[5] = 55
    of_parent = received[4:7].tolist()
    del received
    pair.send(numbers(MB, first=1))
    os.write(write_end, b"x")

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert of_parent == [4, 55, 6]
    assert pair.n_fds_sent == n_open() == 1
    for fd in (read_end, write_end):
        os.close(fd)


def test_what_another_thread_writes_into_an_array_during_a_fork_stays(pair) -> None:
    (received,) = pair.send(np.zeros(4 * MB, np.uint8))
    counts = received.view(np.int64)[::512]
    n_rounds = 0
    has_ended = threading.Event()

    def write() -> None:
        nonlocal n_rounds
        while not has_ended.is_set():
            counts[:] += 1
            n_rounds += 1

    thread = threading.Thread(target=write)
    thread.start()
    statuses = [exit_code_of_child(lambda: 0) for _ in range(5)]
    has_ended.set()
    thread.join()

    assert statuses == [0] * 5
    assert n_rounds > 0
    assert (counts == n_rounds).all()


def test_children_share_one_copy_of_an_array_until_it_changes(pair) -> None:
    (received,) = pair.send(numbers(MB))
    (lease,) = receiver._active
    snapshots = []

    for value in (5, 5, 55):
        received[5] = value
        assert exit_code_of_child(lambda value=value: int(received[5] != value)) == 0
        snapshots.append(lease.snapshot)

    assert snapshots[0] is snapshots[1] is not None
    assert snapshots[2] is not snapshots[1]
    del snapshots[:]
    assert n_open() == 2  # the sender's, and the last copy


def test_a_child_without_memory_for_a_copy_shares_it_and_it_is_not_given_back(pair) -> None:
    arrays = pair.send(numbers(MB))

    with mock.patch.object(receiver, "Snapshot", side_effect=OSError(errno.ENOMEM, "none")):
        status = exit_code_of_child(lambda: int(not np.array_equal(arrays[0], numbers(MB))))
    arrays.clear()
    pair.send(numbers(MB, first=1))

    assert status == 0
    assert pair.n_fds_sent == 2


# What a peer may not do.


@pytest.mark.parametrize(
    "descriptor",
    [
        b"",
        bytes(23),
        bytes(25),
        struct.pack("<QQQ", 1, 1, 2),
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


def _pipe() -> int:
    read, write = os.pipe()
    os.close(write)
    return read


def _unsealed(flags: int = 0) -> int:
    fd = os.memfd_create("courier", os.MFD_CLOEXEC | flags)
    os.ftruncate(fd, MB)
    return fd


def _not_sealed_against_shrinking() -> int:
    return _unsealed(os.MFD_ALLOW_SEALING)


def _read_only() -> int:
    fd = segments.create_file(MB)
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    "make",
    [
        lambda: os.open(__file__, os.O_RDONLY),
        _pipe,
        _unsealed,
        _not_sealed_against_shrinking,
        lambda: segments.create_file(segments.HEADER_SIZE),  # too small
        _read_only,
    ],
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


def test_a_descriptor_that_got_lost_costs_its_messages_and_not_the_connection(pair) -> None:
    lost, found = pair.store(numbers(MB)), pair.store(numbers(MB, first=1))
    (lost_descriptor, _), (descriptor, fd) = map(pair.peer_segments.describe, (lost, found))
    pair.mappings.take(os.dup(fd))

    with pytest.raises(OSError, match="could not be received"):
        pair.mappings.receive(lost_descriptor, lost.lengths)
    with pytest.raises(OSError, match="could not be received"):
        pair.mappings.receive(pair.peer_segments.describe(lost)[0], lost.lengths)
    (view,) = pair.mappings.receive(descriptor, found.lengths)
    assert np.array_equal(np.frombuffer(view, np.uint8), numbers(MB, first=1))


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
