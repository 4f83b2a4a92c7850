"""The verdict on calls between hosts finds broken promises, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.between_hosts import faults, verdict
from benchmarks.between_hosts.faults import Fault
from benchmarks.between_hosts.pair import PairHistory
from benchmarks.harness import bars
from launchpad.testing.call_history import OK, RecordedCall

BEGAN = 100.0

# Calls before, at the beginning of, and after a fault that keep all promises.
GOOD = {
    "blocking/0": RecordedCall(90.0, 90.1, OK, 1),
    "blocking/1": RecordedCall(99.9, 102.5, "OutcomeUnknown", 1),
}


def fault(kind: str, lasts_s: float) -> Fault:
    return Fault(kind, BEGAN, BEGAN + lasts_s, BEGAN + lasts_s)


def successes(at: float) -> dict[str, RecordedCall]:
    """Return a success of each lane at this time."""
    return {f"{name}/9": RecordedCall(BEGAN + 1, at, OK, 1) for name in verdict.LANES}


def judge(of: Fault, **calls: RecordedCall) -> dict[str, Any]:
    """Return the figures of good calls and of these, whose names have the lane and its number."""
    more = {name.replace("__", "/").replace("_", " "): call for name, call in calls.items()}
    history = PairHistory({**GOOD, **successes(of.mended + 1), **more}, [of])
    return verdict.judge([history], faults.KINDS)


def broken(report: dict[str, Any]) -> list[str]:
    return [title.partition(",")[0] for title in bars.misses(report, verdict.BARS)]


@pytest.mark.parametrize("kind", [kind for kind in faults.KINDS if kind != faults.FREEZE])
def test_calls_that_keep_the_promises_are_well(kind: str) -> None:
    report = judge(fault(kind, 6))

    assert broken(report) == []
    assert report["kinds"][kind] == {
        "faults": 1,
        "in_flight": 1,
        "longest_end_s": 2.5,
        "first_success_s": 1.0,
        "all_succeed_s": 1.0,
        "lost": 0,
        "twice": 0,
        "in_doubt": 1,
    }


@pytest.mark.parametrize(
    "call",
    [
        RecordedCall(99.0, 104.5, "OutcomeUnknown", 1),  # in flight when the fault began
        RecordedCall(
            101.0, 105.5, "OutcomeUnknown", 1
        ),  # sent on a connection that the fault had ended
        RecordedCall(99.0, 107.0, OK, 1),  # answered after a silence that no connection survives
    ],
)
def test_a_call_in_flight_that_ends_too_late_is_found(call: RecordedCall) -> None:
    assert broken(judge(fault("cable", 6), blocking__2=call)) == [
        "end of a call in flight after a silent fault"
    ]


def test_a_call_in_flight_that_never_ends_is_found() -> None:
    assert broken(judge(fault("cable", 6), long__2=RecordedCall(99.0, None, "", 1))) == [
        "calls never answered",
        "end of a call in flight after a silent fault",
    ]


def test_a_long_call_may_survive_a_short_silence_unless_its_connection_cannot() -> None:
    call = RecordedCall(99.0, 130.0, OK, 1)

    assert broken(judge(fault("cable", 2), long__2=call)) == []
    assert broken(judge(fault("power", 2), long__2=call)) == [
        "end of a call in flight after a silent fault"
    ]


def test_a_first_success_after_more_than_two_seconds_is_found() -> None:
    history = PairHistory({**GOOD, **successes(BEGAN + 8.5)}, [fault("cut", 6)])

    report = verdict.judge([history], faults.KINDS)

    assert broken(report) == ["first success after the end of a fault"]
    assert report["kinds"]["cut"]["first_success_s"] == 2.5


def test_a_lane_without_a_success_is_found_although_others_have_one() -> None:
    calls = {**GOOD, **successes(BEGAN + 7)}
    del calls["coroutines/9"]

    report = verdict.judge([PairHistory(calls, [fault("cut", 6)])], faults.KINDS)

    assert broken(report) == ["success of every lane after the end of a fault"]


def test_a_frozen_host_may_keep_calls_waiting_and_lose_none() -> None:
    frozen = fault(faults.FREEZE, 6)
    waited = RecordedCall(99.9, 106.5, OK, 1)
    lost = RecordedCall(99.9, 102.5, "OutcomeUnknown", 1)
    good = {"blocking/0": waited, **successes(107.0)}

    assert broken(verdict.judge([PairHistory(good, [frozen])], faults.KINDS)) == []
    history = PairHistory({**good, "futures/1": lost}, [frozen])
    assert broken(verdict.judge([history], faults.KINDS)) == [
        "calls in flight that a frozen host lost"
    ]


@pytest.mark.parametrize(
    ("call", "lane"),
    [
        (RecordedCall(50.0, 50.5, "OutcomeUnknown", 0), "blocking"),  # long before the fault
        (RecordedCall(99.0, 101.0, "NotSent", 0), "blocking"),  # it should have waited
        (RecordedCall(99.0, 101.0, "WrongAnswerError", 1), "stream"),
    ],
)
def test_an_error_that_no_fault_explains_is_found(call: RecordedCall, lane: str) -> None:
    assert broken(judge(fault("cable", 6), **{f"{lane}__2": call})) == [
        "errors that no fault explains"
    ]


def test_a_lost_call_and_a_double_one_are_counted_for_the_fault_that_may_have_hit_them() -> None:
    lost = RecordedCall(99.0, 101.0, OK, 0)
    twice = RecordedCall(99.0, 101.0, OK, 2)

    report = judge(fault("pause", 6), blocking__2=lost, futures__3=twice)

    assert broken(report) == ["acknowledged calls lost", "calls run twice"]
    assert (report["kinds"]["pause"]["lost"], report["kinds"]["pause"]["twice"]) == (1, 1)
    assert report["kinds"]["cut"]["lost"] == 0


def test_all_kinds_are_drawn_equally_often_and_the_same_for_the_same_seed() -> None:
    kinds = list(faults.KINDS)

    schedules = faults.draw(7, kinds, n_faults=40, n_pairs=5)

    drawn = [planned.kind for schedule in schedules for planned in schedule]
    assert {kind: drawn.count(kind) for kind in kinds} == dict.fromkeys(kinds, 5)
    assert [len(schedule) for schedule in schedules] == [8] * 5
    assert schedules == faults.draw(7, kinds, n_faults=40, n_pairs=5)
    assert schedules != faults.draw(8, kinds, n_faults=40, n_pairs=5)
