"""A rank dies, leaves, is late or does something else: what the others find, and how they go on."""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import launchpad as lp
from launchpad.collectives import host_memory, mailbox, participation, port
from launchpad.collectives.attendance import Attendance
from launchpad.collectives.generation import Generation
from launchpad.collectives.mailbox import Mailbox
from launchpad.collectives.port import Port
from launchpad.courier.shm import segments
from launchpad.errors import Stopped
from tests.helpers import collective_nodes
from tests.helpers.collective_nodes import in_ranks, program_of
from tests.waiting import until

DEADLINE_S = 60
ELASTIC = lp.RestartPolicy(min_replicas=2, backoff=0.3)


def failure_in(n: int, fn: Any, *args: Any) -> str:
    """What is said of a program of so many ranks, which fails."""
    with pytest.raises(lp.ProgramFailed) as caught:
        in_ranks(n, fn, *args)
    return str(caught.value)


HAS_COMPARED = threading.Event()


def keep_another_waiting(group: lp.Collective) -> None:
    """Come to a barrier when rank 0 has waited there so long that it has compared operations."""
    if group.rank == 1:
        assert HAS_COMPARED.wait(DEADLINE_S)
    group.barrier()


def test_a_rank_that_waits_takes_no_random_numbers_from_its_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compare = port.RankEdges._different

    def compare_and_tell(edges: Any, ranks: Any) -> Any:
        different = compare(edges, ranks)
        HAS_COMPARED.set()
        return different

    monkeypatch.setattr(port.RankEdges, "_different", compare_and_tell)
    sample = Mock(wraps=random.sample)
    monkeypatch.setattr(random, "sample", sample)

    in_ranks(2, keep_another_waiting)

    assert HAS_COMPARED.is_set()
    sample.assert_not_called()


@pytest.mark.timing
@pytest.mark.parametrize("when", ["awaited", "between chunks", "busy"])
def test_a_rank_that_is_killed_is_known_to_the_others_within_a_second(when: str) -> None:
    policy = lp.RestartPolicy(backoff=0)  # each by itself: no rank learns of it from the supervisor
    program = program_of(4, collective_nodes.lose_one, "kill", when, restart=policy)

    with lp.launch(program, "test_mp") as running:
        results = running.results("rank", DEADLINE_S)
        logs = {rank: running.logs(f"rank-{rank}") for rank in range(4)}

    assert results == [(2, 4, 4, 2)] * 4
    died_at = float(logs.pop(1).split("dies at ")[1].split()[0])
    for log in logs.values():
        (known_at,) = re.findall(r"knows at (\S+) rank-1 1", log)
        assert float(known_at) - died_at < 1 + 0.2 * (when == "busy")


@pytest.mark.parametrize(
    ("how", "texts"),
    [
        ("size", ["all_reduce('sum') of float64[2]", "all_reduce('sum') of float64[3]"]),
        ("dtype", ["float64[1048576]", "float32[1048576]"]),
        ("operation", ["broadcast from rank 0 of float64[3]", "barrier 'here'"]),
        ("silence", ["barrier 'here'", "all_reduce('sum') of float64[3]"]),
    ],
)
def test_ranks_that_do_different_things_are_both_named(how: str, texts: list[str]) -> None:
    failure = failure_in(2, collective_nodes.do_different_things, how)

    for text in ("CollectiveMismatch", "rank-0 (rank 0)", "rank-1 (rank 1)", *texts):
        assert text in failure


DIFFERENT: dict[str, list[Callable[[lp.Collective], object]]] = {
    "shapes": [
        lambda group: group.all_reduce(np.ones((2, 3))),
        lambda group: group.all_reduce(np.ones((3, 2))),
    ],
    "keys": [
        lambda group: group.all_reduce({"loss": np.ones(2)}),
        lambda group: group.all_reduce({"steps": np.ones(2)}),
    ],
    "leaves": [
        lambda group: group.all_reduce([np.ones(2), np.ones(3)]),
        lambda group: group.all_reduce([np.ones(3), np.ones(2)]),
    ],
    "types": [
        lambda group: group.all_reduce({"a": np.ones(2, "f4"), "b": np.ones(2)}),
        lambda group: group.all_reduce({"a": np.ones(2), "b": np.ones(2, "f4")}),
    ],
    "nothing": [
        lambda group: group.all_reduce({"a": None, "b": 1}),
        lambda group: group.all_reduce({"a": 1, "b": None}),
    ],
    "containers": [
        lambda group: group.all_reduce(collective_nodes.Pair(1, 2)),
        lambda group: group.all_reduce((1, 2)),
    ],
    "one of many": [
        lambda group: group.all_reduce({f"layer {i}": np.ones(9) for i in range(100)}),
        lambda group: group.all_reduce({f"layer {i + i // 99}": np.ones(9) for i in range(100)}),
    ],
    "in memory": [
        lambda group: [group.all_reduce(np.ones(shape)) for shape in (6, (2, 3))],
        lambda group: [group.all_reduce(np.ones(shape)) for shape in (6, (3, 2))],
    ],
    "large": [
        lambda group: group.all_reduce(np.ones((1 << 10, 1 << 9))),
        lambda group: group.all_reduce(np.ones((1 << 9, 1 << 10))),
    ],
    "broadcast": [  # the root may have gone on when the other one comes
        lambda group: (group.broadcast({"w": np.ones(2), "b": np.ones(3)}), group.barrier()),
        lambda group: (group.broadcast({"w": np.ones(3), "b": np.ones(2)}), group.barrier()),
    ],
    "all_gather": [
        lambda group: group.all_gather(np.ones((2, 3))),
        lambda group: group.all_gather(np.ones((3, 2))),
    ],
    "reduce_scatter": [
        lambda group: group.reduce_scatter(np.ones((2, 4))),
        lambda group: group.reduce_scatter(np.ones((4, 2))),
    ],
    "all_to_all": [
        lambda group: group.all_to_all([{"x": 1}] * 2),
        lambda group: group.all_to_all([{"y": 1}] * 2),
    ],
    "one call ahead": [
        lambda group: (group.all_reduce({}), group.all_reduce(1.0)),
        lambda group: group.all_reduce(1.0),
    ],
}


def error_of(group: lp.Collective, how: str) -> tuple[str, str, float]:
    """What a rank raises when it does its own thing: type, text, and after how long."""
    began = time.monotonic()
    with pytest.raises((lp.LaunchpadError, TimeoutError)) as caught:
        (DIFFERENT | SILENT)[how][min(group.rank, 1)](group)
    return type(caught.value).__name__, str(caught.value), time.monotonic() - began


@pytest.mark.parametrize("how", DIFFERENT)
def test_ranks_with_different_values_are_told_so(how: str) -> None:
    errors = in_ranks(2, error_of, how)

    for kind, text, _ in errors:
        assert kind == "CollectiveMismatch"
        assert "rank-0 (rank 0)" in text
        assert "rank-1 (rank 1)" in text


def test_different_values_are_shown() -> None:
    (_, shapes, _), _ = in_ranks(2, error_of, "shapes")
    (_, keys, _), _ = in_ranks(2, error_of, "keys", launch_type="test_mp")

    for shape in ("[2, 3]", "[3, 2]"):
        assert f"all_reduce('sum') of float64{shape} (call 1)" in shapes
    for key in ("loss", "steps"):
        assert f"all_reduce('sum') of {{'{key}': float64[2]}} (call 1)" in keys


def wait_for_call(group: lp.Collective, rank: int) -> None:
    """Returns when the rank has begun its first call."""
    operations: Any = group._operations
    until(lambda: operations._edges._progress(rank, DEADLINE_S)[0] > 0)


SILENT: dict[str, list[Callable[[lp.Collective], object]]] = {
    "barrier, broadcast_object": [
        lambda group: group.barrier("x"),
        lambda group: group.broadcast_object(),
    ],
    "gather_object, broadcast": [
        lambda group: group.gather_object(1),
        lambda group: group.broadcast(1.0),
    ],
    "two roots": [
        lambda group: group.broadcast(1.0, root=1),
        lambda group: group.broadcast(1.0, root=0),
    ],
    "one ahead": [
        lambda group: group.broadcast_object(root=1),
        lambda group: (group.gather_object(1, root=0), group.broadcast_object(root=0)),
    ],
    "a short limit": [
        lambda group: (wait_for_call(group, 1), group.barrier("x", timeout_s=0.001)),
        lambda group: group.broadcast_object(),
    ],
}
"""All ranks wait for each other, and none has sent anything."""


@pytest.mark.parametrize("how", SILENT)
@pytest.mark.parametrize("n", [2, 3])
def test_ranks_that_wait_for_each_other_in_different_calls_are_told_soon(
    how: str, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "COMPARE_S", 0.05)

    errors = in_ranks(n, error_of, how)

    assert {kind for kind, *_ in errors} == {"CollectiveMismatch"}
    for _, text, took_s in errors:
        assert len({*re.findall(r"rank-\d \(rank \d\)", text)}) == 2
        assert took_s < DEADLINE_S / 2


def test_processes_that_wait_for_each_other_in_different_calls_are_told_soon() -> None:
    how = "barrier, broadcast_object"

    errors = in_ranks(2, error_of, how, launch_type="test_mp")

    for kind, text, took_s in errors:
        assert kind == "CollectiveMismatch"
        assert "rank-0 (rank 0) is in barrier 'x' (call 1)" in text
        assert "rank-1 (rank 1) is in broadcast_object from rank 0 (call 1)" in text
        assert took_s < DEADLINE_S / 2


def call_at_random_moments(group: lp.Collective, n_calls: int) -> int:
    """The same calls in all ranks, which come at different times."""
    calls: list[Callable[[], object]] = [
        lambda: group.barrier("here"),
        lambda: group.all_reduce(1.0),
        lambda: group.broadcast(np.ones(3), root=1),
        lambda: group.broadcast_object("x", root=2),
        lambda: group.gather_object(1),
        lambda: group.all_gather([1, 2.0]),
        lambda: group.reduce_scatter(np.ones((4, 2))),
        lambda: group.all_to_all([1.0] * group.size),
        lambda: group.all_reduce(np.ones(1 << 18)),
    ]
    choose, delay = random.Random(7), random.Random(group.rank)
    for _ in range(n_calls):
        call = choose.choice(calls)
        time.sleep(delay.choice([0, 0, 0.001, 0.004]))
        call()
    return n_calls


@pytest.mark.parametrize("are_on_one_host", [True, False])
def test_ranks_that_come_late_are_not_taken_for_others_by_those_that_ask_them(
    are_on_one_host: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "COMPARE_S", 0.0005)
    monkeypatch.setattr(port, "COMPARE_S", 0.002)
    if not are_on_one_host:
        monkeypatch.setattr(host_memory, "boot_id", lambda: os.urandom(16))

    results = in_ranks(4, call_at_random_moments, 150)

    assert results == [150] * 4


def leave_for_another(group: lp.Collective, what: str) -> None:
    collective_nodes.leave_between_chunks(group)
    if what == "barrier":
        group.barrier("next")
    else:
        group.all_reduce(np.ones(3))


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("all_reduce", "all_reduce('sum') of float64[3]"),
        pytest.param("barrier", "barrier 'next'", marks=pytest.mark.slow),
    ],
)
def test_one_that_leaves_an_operation_between_its_chunks_is_named(what: str, text: str) -> None:
    failure = failure_in(2, leave_for_another, what)

    own = f"rank-1 (rank 1) is in {text}"
    for part in ("CollectiveMismatch", "all_reduce('sum') of float32[1048576]", own):
        assert part in failure


def test_one_that_returns_or_does_not_come_in_time_while_others_wait_for_it_is_named() -> None:
    returned = failure_in(3, collective_nodes.leave_early)
    late = failure_in(3, collective_nodes.come_late)

    assert "rank-1 (rank 1 of 3 in 'rank', generation 1) has returned, while" in returned
    assert "TimeoutError" in late
    assert "waited in barrier 'late' (call 1) for 0.5 s; absent: rank-2 (rank 2)" in late


def raise_and_fail_to_close(group: lp.Collective) -> None:
    runtime = Mock()
    runtime.close.side_effect = RuntimeError("cannot be closed")
    group._operations.close = lambda: print("operations are closed")  # type: ignore[method-assign]
    group._runtimes.append(runtime)
    raise ValueError("told to fail")


def test_what_raises_while_a_rank_is_closed_hides_no_earlier_error() -> None:
    program = program_of(1, raise_and_fail_to_close)

    running = lp.launch(program, "test_mt")
    running.wait(DEADLINE_S, raise_error=False)

    assert "ValueError: told to fail" in str(running.failure())
    log = running.logs("rank-0")
    assert "operations are closed" in log
    assert "cannot be closed" in log


def wait_for_ever(group: lp.Collective) -> None:
    if group.rank:
        lp.wait_for_stop()
    else:
        lp.stop()
        group.barrier("never")


def test_a_wait_for_others_ends_when_the_program_stops() -> None:
    running = lp.testing.run(program_of(2, wait_for_ever), DEADLINE_S, "test_mp")

    assert states_in(running) <= {"stopped", "succeeded"}


def states_in(running: lp.Running) -> set[str]:
    return {status.state for status in running.status()}


def test_a_rank_stopped_opening_memory_leaves_none_open(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def open_and_stop(size: int) -> int:
        opened.append(fd := create_file(size))
        lp.stop()
        lp.current().stop.interruption.request()
        return fd

    create_file = segments.create_file
    monkeypatch.setattr(segments, "create_file", open_and_stop)

    running = lp.testing.run(program_of(2, lambda group: group.all_reduce(1.0)), DEADLINE_S)

    assert opened
    assert states_in(running) <= {"stopped", "succeeded"}  # and nothing is left over


def test_a_stop_ends_waits_for_one_that_has_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Port.open

    def stop_when_another_one_waits(port: Port, generation: Generation) -> Mailbox:
        if lp.current().name == "rank-0":
            until(lambda: any(mailbox._waits for mailbox in port._mailboxes.values()))
            lp.stop()
            raise Stopped  # as where it is interrupted here
        return begin(port, generation)

    monkeypatch.setattr(Port, "open", stop_when_another_one_waits)

    running = lp.testing.run(program_of(2, lambda group: group.all_reduce(1.0)), DEADLINE_S)

    assert states_in(running) <= {"stopped", "succeeded"}


def test_an_elastic_group_counts_each_step_once_with_4_and_3_and_4_ranks() -> None:
    program = program_of(4, collective_nodes.count_steps, 60, 20, restart=ELASTIC)

    results = lp.run(program, "test_mp", timeout_s=DEADLINE_S)["rank"]

    assert [(step, total) for step, _, total in results] == [(60, sum(range(60)))] * 4
    for index, (_, sizes, _) in enumerate(results):
        assert sizes[-1] == 4
        assert set(sizes) <= {3, 4}
        assert index == 1 or sizes[0] == 4


def test_a_rank_that_goes_on_comes_again_before_it_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    formed: set[Attendance] = set()
    places: dict[int, list[Attendance]] = defaultdict(list)
    left_early: list[Attendance] = []

    class Watched(Attendance):
        def __init__(self, client: Any, replica: int, label: str) -> None:
            places[replica].append(self)
            super().__init__(client, replica, label)

        def wait_formed(self, timeout_s: float) -> Generation | None:
            generation = super().wait_formed(timeout_s)
            formed.add(self)
            return generation

        def abandon(self) -> None:
            if places[self._replica][-1] not in formed:
                left_early.append(self)
            super().abandon()

    monkeypatch.setattr(participation, "Attendance", Watched)
    collective_nodes.counted.clear()
    program = program_of(4, collective_nodes.count_steps, 60, 20, restart=ELASTIC)

    lp.run(program, "test_mt", timeout_s=DEADLINE_S)

    assert len(places[0]) > 1
    assert not left_early


def test_an_elastic_object_is_built_anew_when_a_rank_is_lost_while_it_is_built() -> None:
    program = program_of(4, collective_nodes.LosesOne, restart=ELASTIC)

    results = lp.run(program, "test_mp", timeout_s=DEADLINE_S)["rank"]

    assert [size for size, _ in results] == [4] * 4
    assert results[0][1] == results[3][1] == 1  # in the same process all the time


def test_an_elastic_group_goes_on_without_one_whose_restarts_are_used_up() -> None:
    policy = lp.RestartPolicy(min_replicas=2, max_restarts=0)
    program = program_of(3, collective_nodes.lose_one, "kill", restart=policy)

    running = lp.testing.run(program, DEADLINE_S, "test_mp")

    states = {s.worker: s.state for s in running.status() if s.label == "rank"}
    assert states == {"rank-0": "succeeded", "rank-1": "failed", "rank-2": "succeeded"}
