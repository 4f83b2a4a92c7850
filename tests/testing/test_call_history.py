"""The history checker finds what it is there to find."""

from __future__ import annotations

import os
import pickle
import signal
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

import launchpad as lp
from launchpad.testing import History


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "history")


def make(history: History, call: int | str, runs: int = 1) -> None:
    with history.call(call):
        for _ in range(runs):
            history.ran(call)


def fail(history: History, call: int, error: Exception, runs: int = 0) -> None:
    for _ in range(runs):
        history.ran(call)
    with pytest.raises(type(error)), history.call(call):
        raise error


def test_calls_that_ran_once_are_well(history: History) -> None:
    assert history.check().acknowledged == {}

    for call in range(10):
        make(history, call)

    assert history.check().acknowledged == {"ok": 10}


def test_a_lost_call_is_found(history: History) -> None:
    make(history, "a", runs=0)

    with pytest.raises(AssertionError, match=r"acknowledged, and never run: a \(of 1 calls\)"):
        history.check()


def test_a_call_that_ran_twice_is_found_unless_it_may_repeat(history: History) -> None:
    make(history, 7, runs=2)

    with pytest.raises(AssertionError, match="run more than once: 7"):
        history.check()
    assert history.check(may_repeat=True).repeated == [7]


def test_a_call_that_was_not_sent_must_not_have_run(history: History) -> None:
    fail(history, 1, lp.courier.NotSent("no"))
    assert history.check().acknowledged == {"NotSent": 1}

    fail(history, 2, lp.courier.NotSent("no"), runs=1)
    with pytest.raises(AssertionError, match="NotSent, and run all the same: 2"):
        history.check()


def test_a_call_of_unknown_outcome_may_have_run_once_or_not_at_all(history: History) -> None:
    fail(history, 1, lp.courier.OutcomeUnknown("?"), runs=1)
    fail(history, 2, lp.courier.OutcomeUnknown("?"))

    assert history.check().acknowledged == {"OutcomeUnknown": 2}


def test_a_call_that_was_never_answered_is_found_unless_clients_die(history: History) -> None:
    history.follow(3, Future())

    with pytest.raises(AssertionError, match="never answered: 3"):
        history.check()
    assert history.check(may_be_unanswered=True).unanswered == [3]


def test_futures_are_followed_to_their_end(history: History) -> None:
    with ThreadPoolExecutor(4) as pool:
        for call in range(20):
            history.follow(call, pool.submit(history.ran, call))
        history.follow("bad", pool.submit(int, "x"))
    cancelled: Future[None] = Future()
    history.follow("cancelled", cancelled)
    cancelled.cancel()

    assert history.check().acknowledged == {"ok": 20, "ValueError": 1, "CancelledError": 1}


def test_many_wrong_calls_are_counted_and_few_shown(history: History) -> None:
    for call in range(100):
        make(history, call, runs=0)

    with pytest.raises(AssertionError, match="0, 1, 2, 3, 4 and 95 more"):
        history.check()


def test_what_a_process_wrote_before_it_was_killed_is_there(history: History) -> None:
    copy = pickle.loads(pickle.dumps(history))
    if (pid := os.fork()) == 0:
        copy.ran("x")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    make(history, "x", runs=0)

    assert history.check().acknowledged == {"ok": 1}
