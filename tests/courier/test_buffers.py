"""Memory for large buffers, which is used again."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from launchpad.courier import buffers

MB = 1 << 20


@pytest.fixture(autouse=True)
def nothing_is_idle() -> Iterator[None]:
    buffers._idle.clear()
    yield
    buffers._idle.clear()


def test_memory_is_used_again_when_it_is_free() -> None:
    first = buffers.allocate(3 * MB)
    first[:5] = b"first"
    del first

    assert buffers.allocate(3 * MB)[:5] == b"first"


def test_memory_is_not_used_again_while_a_part_of_it_is_referred_to() -> None:
    first = buffers.allocate(3 * MB)
    part = first[10:20]
    part[:] = bytes(10)
    del first

    buffers.allocate(3 * MB)[:] = b"x" * (3 * MB)

    assert part == bytes(10)


def test_memory_that_a_finalizer_brings_back_to_life_is_its_own() -> None:
    class Keeper:
        kept: memoryview

        def __init__(self) -> None:
            self.me, self.view = self, buffers.allocate(3 * MB)
            self.view[:4] = b"mine"

        def __del__(self) -> None:
            Keeper.kept = self.view

    Keeper()
    gc.collect()
    other = buffers.allocate(3 * MB)
    other[:4] = b"your"

    assert Keeper.kept[:4] == b"mine"


def test_as_much_is_given_as_was_asked_for() -> None:
    for n in (0, 1, 255 << 10, 300_001, 5 * MB + 1):
        assert buffers.allocate(n).nbytes == n


def test_a_huge_piece_does_not_drive_out_the_others() -> None:
    small = buffers.allocate(MB)
    huge = buffers.allocate(buffers._MAX_IDLE + 1)
    del small
    del huge

    assert [len(block) for block in buffers._idle] == [MB]


def test_idle_memory_is_limited_and_used_for_buffers_of_its_own_size(monkeypatch) -> None:
    monkeypatch.setattr(buffers, "_MAX_IDLE", 10 * MB)

    block = buffers.allocate(8 * MB)
    del block
    others = [buffers.allocate(n) for n in (300_000, 9 * MB)]
    assert [other.nbytes for other in others] == [300_000, 9 * MB]
    assert [len(block) for block in buffers._idle] == [8 * MB]

    held = [buffers.allocate(4 * MB) for _ in range(10)]
    del held
    small = [buffers.allocate(300_000) for _ in range(100)]
    del small

    assert sum(map(len, buffers._idle)) <= 10 * MB
    assert len(buffers._idle) <= buffers._MAX_BLOCKS
