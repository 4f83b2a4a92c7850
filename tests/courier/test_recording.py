"""Recordings: spans of calls for some seconds, joined at both ends, of so many calls and no more."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from launchpad import courier
from launchpad.courier import caller
from launchpad.courier.telemetry import recording, tracing
from launchpad.courier.telemetry.recording import (
    ANSWER,
    CALL,
    COROUTINE,
    FUTURE,
    SUBMIT,
    UNFINISHED,
    WAIT,
    Recorded,
    RecordingSession,
    Span,
)
from tests.courier.conftest import DEADLINE_S, in_background
from tests.courier.test_tracing import Traced, is_chain
from tests.waiting import until

LONG_S = 60.0


@pytest.fixture(autouse=True)
def nothing_is_recorded_afterwards() -> Iterator[None]:
    yield
    until(lambda: tracing.recorder is None, DEADLINE_S)
    assert tracing.spans is None


def start(found: list[Recorded], seconds: float = LONG_S, rate: int = 4000) -> RecordingSession:
    """A recording of this process, which has begun to take calls."""
    session = recording.record(caller.own_peer(), seconds, rate, found.append)
    until(lambda: tracing.spans is not None, DEADLINE_S)
    return session


def spans_of(recorded: Recorded) -> list[Span]:
    return [span for thread in recorded.threads for span in thread.spans]


async def later(value: int) -> int:
    return value


def fail() -> None:
    raise LookupError("nothing")


@pytest.mark.every_transport
def test_both_ends_of_a_call_are_recorded_by_one_number(client_of) -> None:
    client = client_of(name="server-0", work=lambda: None, later=later, fail=fail)
    client.work()
    found: list[Recorded] = []
    session = start(found)

    client.work()
    client.futures.later(1).result()
    with pytest.raises(LookupError):
        client.fail()
    recording.end([session])

    [recorded] = found
    by_method = {
        method: {span[0]: span for span in spans_of(recorded) if span[2] == method}
        for method in ("work", "later", "fail")
    }
    assert [set(kinds) for kinds in by_method.values()] == [
        {CALL, ANSWER},
        {SUBMIT, FUTURE, ANSWER, COROUTINE},
        {CALL, ANSWER},
    ]
    for kinds in by_method.values():
        assert len({span[5] for span in kinds.values()}) == 1
        assert {span[1] for span in kinds.values()} == {"server-0"}
    call, answer = by_method["work"][CALL], by_method["work"][ANSWER]
    assert call[3] <= answer[3] <= answer[4] <= call[4]
    assert [by_method["fail"][kind][6] for kind in (CALL, ANSWER)] == ["LookupError", "raised"]
    assert recorded.calls == 3


def test_no_more_calls_are_recorded_than_asked_for_and_all_are_counted(unix_client_of) -> None:
    client = unix_client_of(work=lambda: None)
    client.work()
    found: list[Recorded] = []

    session = start(found, rate=160)
    for _ in range(1000):
        client.work()
    recording.end([session])

    [recorded] = found
    n_recorded = sum(span[0] == CALL for span in spans_of(recorded))
    took_s = (recorded.ended_ns - recorded.began_ns) / 1e9
    assert 1 <= n_recorded <= 40 * took_s + 20 + 40
    assert recorded.calls == 1000


def test_a_recording_ends_by_itself_and_shows_what_has_not_ended(unix_client_of) -> None:
    goes_on = threading.Event()
    client = unix_client_of(work=goes_on.wait)
    found: list[Recorded] = []
    waiting = in_background(wait_in, "a barrier", goes_on)

    start(found, seconds=1.0)
    future = client.futures.work()
    until(lambda: found, DEADLINE_S)
    goes_on.set()

    future.result()
    waiting.result(DEADLINE_S)
    open_spans = {
        (kind, method) for kind, _, method, *_, why in spans_of(found[0]) if why == UNFINISHED
    }
    assert open_spans == {(FUTURE, "work"), (ANSWER, "work"), (WAIT, "a barrier")}
    assert all(span[3] >= found[0].began_ns for span in spans_of(found[0]))


def wait_in(what: str, event: threading.Event) -> None:
    with tracing.Wait(what):
        event.wait()


def test_waits_that_are_over_are_recorded_but_for_the_shortest() -> None:
    found: list[Recorded] = []
    session = start(found)

    with tracing.Wait("long"):
        time.sleep(0.001)
    for _ in range(10):
        with tracing.Wait("short"):
            pass
    recording.end([session])

    names = [span[2] for span in spans_of(found[0])]
    assert "long" in names
    assert names.count("short") < 10


def test_opentelemetry_goes_on_beside_a_recording(unix_client_of) -> None:
    traced = Traced()
    client = unix_client_of(name="server-0", work=lambda: None)
    found: list[Recorded] = []

    courier.trace(traced.provider)
    try:
        session = start(found)
        until(lambda: tracing.spans is tracing.recorder, DEADLINE_S)
        client.work()
        recording.end([session])
        spans = traced.spans(2)
    finally:
        courier.stop_tracing()

    assert is_chain(spans)
    assert {span[0] for span in spans_of(found[0])} == {CALL, ANSWER}
