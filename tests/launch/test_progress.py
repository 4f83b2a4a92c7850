"""What a user is told of the workers' states, for three of them and for five hundred."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from launchpad.launch.plan import WorkerPlan
from launchpad.launch.supervision.progress import Progress
from launchpad.launch.supervision.worker_state import NextStart, WorkerState
from launchpad.outcome import FAILED, Outcome


def workers(count: int) -> list[WorkerState]:
    plans = [WorkerPlan(f"w-{i}", "w", i, count, "", 0) for i in range(count)]
    watched = [WorkerState(plan) for plan in plans]
    for worker in watched:
        worker.next_attempt(0.0)
    return watched


def said(
    program: list[WorkerState], until_s: int, change: Callable[[float], None] = lambda now: None
) -> list[tuple[float, str]]:
    """All that is said in so many seconds, and when, looking twice a second."""
    progress = Progress(lambda: program)
    lines = []
    for half_seconds in range(2 * until_s + 1):
        now = half_seconds / 2
        change(now)
        lines += [(now, line) for line in progress(now)]
    return lines


def test_a_program_that_starts_quickly_says_nothing() -> None:
    program = workers(500)

    def change(now: float) -> None:
        for worker in program:
            if now >= 1:
                worker.move("ready")

    assert said(program, 60, change) == []


@pytest.mark.parametrize(
    ("count", "within_s", "shown"),
    [
        (1, 60, "1st within a minute"),
        (2, 60, "2nd within a minute"),
        (3, 90, "3rd within 90 s"),
        (11, 3600, "11th within an hour"),
        (12, 60, "12th within a minute"),
        (22, 60, "22nd within a minute"),
        (111, 0.5, "111th within 0.5 s"),
    ],
)
def test_sound_20_a_restart_is_counted_in_words(count: int, within_s: float, shown: str) -> None:
    assert NextStart(12.0, count, within_s).shown(0.5) == f"again in 12 s ({shown})"


def test_sound_20_the_terminal_tells_when_workers_that_wait_are_started_again() -> None:
    program = workers(2)
    for worker in program:
        worker.move("ready")
    _, waiting = program

    def change(now: float) -> None:
        if now == 100:
            waiting.next_start = NextStart(112.0, 5, 60)
            waiting.move("end")
            waiting.move("restart")
        if now == 112:
            waiting.next_attempt(now)
            waiting.move("ready")

    assert said(program, 120, change) == [
        (103.0, "restarting: w-1 again in 9 s (5th within a minute)"),
        (107.5, "restarting: w-1 again in 5 s (5th within a minute)"),
        (112.0, "ready again: w-1 (attempt 2)"),
    ]


def test_a_slow_constructor_is_named_later_and_later_and_its_end_is_said() -> None:
    program = workers(3)

    def change(now: float) -> None:
        for worker in program[:2]:
            worker.move("ready")
        if now == 100:
            program[2].move("ready")

    lines = said(program, 200, change)

    assert lines[0] == (3.0, "2 of 3 workers are ready after 3 s; still starting: w-2")
    assert lines[-1] == (100.0, "all 3 workers are ready after 100 s")
    pauses = [after - before for (before, _), (after, _) in itertools.pairwise(lines[:-1])]
    assert pauses == sorted(pauses)
    assert 4 <= len(lines) <= 10


def test_of_many_workers_their_number_is_said_about_once_a_second() -> None:
    program = workers(500)

    def change(now: float) -> None:
        for worker in program[: int(now * 50)]:
            worker.move("ready")

    lines = said(program, 20, change)

    assert lines[0][1] == (
        "150 of 500 workers are ready after 3 s; still starting: w-150, w-151, w-152 and 347 more"
    )
    assert lines[-1][1] == "all 500 workers are ready after 10 s"
    assert len(lines) <= 10


def test_who_ends_in_a_program_that_goes_on_is_said_when_that_is_not_new() -> None:
    program = workers(4)

    def change(now: float) -> None:
        for worker in program:
            worker.move("ready")
        if now >= 2:
            program[0].move("end")
        if now >= 20:
            program[1].move("end")
        if now >= 25:
            program[2].outcome = Outcome("w-2", FAILED)
            program[2].move("end")

    assert said(program, 30, change) == [
        (20.0, "done: w-1; 2 of 4 workers are left"),
        (25.0, "ended: w-2; 1 of 4 workers is left"),
    ]


def test_a_slow_stop_names_who_is_waited_for() -> None:
    program = workers(2)
    for worker in program:
        worker.move("ready")
        worker.move("ask")
    program[0].move("end")

    assert said(program, 4) == [(2.0, "still stopping: w-1")]
