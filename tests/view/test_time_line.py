"""Time lines and charts: which workers are shown first, and how much of a busy trace is drawn."""

from __future__ import annotations

import re

import pytest

from launchpad.courier.telemetry.recording import ANSWER, CALL, Recorded, RecordedThread, Span
from launchpad.launch.rundir.history import AttemptRecord, RunHistory
from launchpad.outcome import FAILED, Outcome
from launchpad.telemetry.trace import Trace
from launchpad.view import time_line
from launchpad.view.time_line import MOST_ROWS
from launchpad.view.watched_run import Sample

MS = 1_000_000


def test_of_500_workers_those_that_failed_are_shown_then_those_that_were_restarted() -> None:
    attempts = [AttemptRecord(f"w-{n}", 1, 100.0, ready=101.0) for n in range(500)]
    died = Outcome("w-490", FAILED, cause="ValueError: <no room>")
    attempts[490] = AttemptRecord("w-490", 1, 100.0, 101.0, 105.0, died)
    attempts[300] = AttemptRecord("w-300", 1, 100.0, 101.0, 104.0, Outcome("w-300", "stopped"))
    attempts.insert(301, AttemptRecord("w-300", 2, 104.0))

    line = time_line.of_attempts(RunHistory("demo", tuple(attempts)), 110.0, has_ended=False)

    assert [row.worker for row in line.rows[:3]] == ["w-490", "w-300", "w-0"]
    assert len(line.rows) == MOST_ROWS
    assert line.note.startswith(f"{500 - MOST_ROWS} more workers are not shown")
    assert [(bar.look, bar.began, bar.ended) for bar in line.rows[1].lanes[0]] == [
        ("starting", 100.0, 101.0),
        ("stopped", 101.0, 104.0),
        ("starting", 104.0, 110.0),
    ]
    markup = line.markup("attempts", lambda worker: f"/{worker}")
    assert "ValueError: &lt;no room&gt;" in markup
    assert re.search(r'class="failed"[^>]* style="left:10.000%;width:40.000%">1 failed<', markup)


def test_the_attempts_of_a_run_that_has_ended_are_as_long_as_is_known() -> None:
    ended = AttemptRecord("a", 1, 100.0, 101.0, 104.0, Outcome("a", "succeeded"))
    history = RunHistory("demo", (ended, AttemptRecord("b", 1, 100.0, 101.0)))

    line = time_line.of_attempts(history, 9_999.0, has_ended=True)

    assert (line.began, line.ended) == (100.0, 104.0)


@pytest.mark.parametrize(("every_ms", "lasts_us", "drawn"), [(0.1, 50, 1), (20.0, 5_000, 100)])
def test_calls_close_together_are_drawn_as_one(every_ms: float, lasts_us: int, drawn: int) -> None:
    begun = [round(n * every_ms * MS) for n in range(round(2000 / every_ms))]
    calls = [(CALL, "s", "step", at, at + lasts_us * 1000, n, "") for n, at in enumerate(begun)]
    answers = [(ANSWER, "s", "step", 0, 7 * MS, 0, "")]

    line = time_line.of_calls(trace_of({"a": calls, "s": answers}))

    of_caller, of_server = line.rows
    assert [len(lane) for lane in of_caller.lanes] == [drawn, 0]
    assert [len(lane) for lane in of_server.lanes] == [0, 1]
    assert of_server.lanes[1][0].title == "step  7.00 ms"
    assert ("short ones" in of_caller.lanes[0][0].title) is (drawn == 1)


def trace_of(spans: dict[str, list[Span]]) -> Trace:
    """Two seconds, in which workers have done this."""
    boot = b"one host"
    recorded = {
        (worker, 1): Recorded(
            "here", 1, boot, 0, 0, 0, 2000 * MS, len(own), 0, [RecordedThread(7, "main", own)]
        )
        for worker, own in spans.items()
    }
    return Trace("demo", "demo-1", recorded, (), {}, 0, 2000 * MS, 0, 0, boot)


def test_an_hour_is_a_mean_for_each_half_minute_which_does_not_change_when_others_come() -> None:
    pytest.importorskip("nicegui")
    from launchpad.view.pages import charts

    samples = [Sample(1000.5 + n, n, 0.0, None, None) for n in range(3600)]

    points = charts.points(samples[:-30], lambda sample: sample.calls_per_s)
    later = charts.points(samples, lambda sample: sample.calls_per_s)

    assert len(later) == 121
    assert points[1:-1] == later[1 : len(points) - 1]
    assert later[1] == (1020.0, sum(range(20, 50)) / 30)
    assert charts.points(samples, lambda sample: sample.cpu_percent) == []
