"""What a pool sends next, and to which worker: a value in, a value out."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future

from launchpad.pools.function import PoolFunction
from launchpad.pools.schedule import (
    CallChunk,
    Frame,
    MapCalls,
    MemberState,
    PoolMember,
    Schedule,
    Send,
    TakeBack,
)


def function_of(mean_s: float | None = None, *, may_repeat: bool = False) -> PoolFunction:
    return PoolFunction(b"digest", (b"", ()), "work", may_repeat, mean_s)


def schedule_of(n_members: int, slots: int = 1) -> Schedule:
    return Schedule(
        [PoolMember(f"worker-{i}", state=MemberState.UP, slots=slots) for i in range(n_members)]
    )


def chunk_of(function: PoolFunction, name: object = 0) -> CallChunk:
    return CallChunk(function, [((name,), {})], Future())


def map_of(function: PoolFunction, n_calls: int, chunksize: int | None = None) -> MapCalls:
    calls = MapCalls(function, chunksize)
    calls.uncut.extend(((i,), {}) for i in range(n_calls))
    return calls


def schedule_with(
    function: PoolFunction, names: Iterable[object], n_members: int = 1, slots: int = 1
) -> Schedule:
    """In which a chunk of each name waits."""
    schedule = schedule_of(n_members, slots)
    for name in names:
        schedule.add(chunk_of(function, name))
    return schedule


def sent(schedule: Schedule) -> list[Frame]:
    frames = []
    while isinstance(action := schedule.next(), Send):
        frames.append(action.frame)
    return frames


def names_in(frame: Frame) -> list[object]:
    return [args[0] for chunk in frame.chunks for args, _ in chunk.calls]


def test_what_may_run_once_is_sent_to_free_slots_only() -> None:
    schedule = schedule_with(function_of(), range(9), n_members=2, slots=2)

    frames = sent(schedule)

    assert [(f.member.name, names_in(f)) for f in frames] == [
        ("worker-0", [0]),
        ("worker-1", [1]),
        ("worker-0", [2]),
        ("worker-1", [3]),
    ]
    schedule.end(frames[1])
    assert [(f.member.name, names_in(f)) for f in sent(schedule)] == [("worker-1", [4])]


def test_what_may_run_twice_is_sent_ahead_and_taken_back_when_another_worker_is_free() -> None:
    schedule = schedule_with(function_of(may_repeat=True), range(9), n_members=2)

    frames = sent(schedule)
    assert [names_in(f) for f in frames] == [[0], [1], [2], [3]]
    schedule.cancel_queued()
    for frame in frames:
        if frame.member.name == "worker-1":
            schedule.end(frame)

    assert schedule.next() == TakeBack(frames[2])
    assert schedule.next() is None, "it is asked for once"


def test_a_map_is_cut_by_how_long_calls_take() -> None:
    schedule, function = schedule_of(1), function_of()
    schedule.add(map_of(function, 1000))

    (first,) = sent(schedule)
    function.note(seconds=0.001, n_calls=1)
    schedule.end(first)
    (second,) = sent(schedule)

    assert names_in(first) == [0]
    assert names_in(second) == list(range(1, 21))


def test_towards_the_end_frames_are_half_of_a_slots_share() -> None:
    schedule, function = schedule_of(2), function_of(mean_s=1e-6)
    schedule.add(map_of(function, 100))

    sizes = []
    while frames := sent(schedule):
        sizes += [len(names_in(frame)) for frame in frames]
        for frame in frames:
            schedule.end(frame)

    assert sizes[:3] == [25, 19, 14]
    assert sizes[-1] == 1
    assert sum(sizes) == 100


def test_chunks_of_a_size_that_was_asked_for_share_a_frame_where_they_may_run_twice() -> None:
    once, twice = function_of(mean_s=0.001), function_of(mean_s=0.001, may_repeat=True)

    sizes = []
    for function in (once, twice):
        schedule = schedule_of(1)
        schedule.add(map_of(function, 1000, chunksize=5))
        sizes.append([len(chunk.calls) for chunk in sent(schedule)[0].chunks])

    assert sizes == [[5], [5, 5, 5, 5]]


def test_large_arguments_make_small_frames() -> None:
    schedule, calls = schedule_of(1), map_of(function_of(mean_s=1e-6), 0)
    calls.uncut.extend(((bytes(1 << 20),), {}) for _ in range(1000))
    schedule.add(calls)

    (frame,) = sent(schedule)

    assert len(names_in(frame)) == 8


def test_what_was_given_back_is_sent_first_and_what_was_cancelled_is_passed_over() -> None:
    schedule, function = schedule_of(1), function_of()
    chunks = [chunk_of(function, name) for name in "abc"]
    for chunk in chunks:
        schedule.add(chunk)
    (frame,) = sent(schedule)

    schedule.end(frame)
    schedule.give_back(frame.chunks)
    assert chunks[1].future.cancel()

    (frame,) = sent(schedule)
    assert names_in(frame) == ["a"]
    assert not chunks[0].future.cancel(), "it runs"
    schedule.end(frame)
    assert [names_in(frame) for frame in sent(schedule)] == [["c"]]


def test_nothing_is_sent_to_a_worker_that_is_not_up() -> None:
    schedule = schedule_with(function_of(), range(3), n_members=2)
    schedule.members[0].state = MemberState.STARTING

    assert [frame.member.name for frame in sent(schedule)] == ["worker-1"]
