"""Watermarks: numbers that only grow, whatever order they come in."""

from __future__ import annotations

import threading

from launchpad.runtime.watermarks import Watermarks


def test_the_larger_number_counts_in_whatever_order_they_come() -> None:
    marks = Watermarks()
    grown: list[tuple[str, int]] = []
    marks.on_growth("ended/", lambda name, value: grown.append((name, value)))

    for values in (
        {"ended/a-0": 2},
        {"ended/a-0": 1, "ended/b-0": 1, "other": 5},
        {"ended/a-0": 2},
    ):
        marks.grow(values)

    assert grown == [("a-0", 2), ("b-0", 1)]
    assert (marks.get("ended/a-0"), marks.get("never")) == (2, 0)
    assert marks.names("ended/", 2) == ["a-0"]


def test_one_that_waits_is_woken_by_growth_and_by_hand_and_gives_up_in_time() -> None:
    marks, is_stopped = Watermarks(), threading.Event()
    results: list[bool] = []
    waits = [
        lambda: marks.wait_for(lambda: marks.get("x") >= 3, 20),
        lambda: marks.wait_for(is_stopped.is_set, 20),
    ]
    threads = [threading.Thread(target=lambda wait=wait: results.append(wait())) for wait in waits]
    for thread in threads:
        thread.start()

    marks.grow({"x": 3})
    is_stopped.set()
    marks.wake()
    for thread in threads:
        thread.join(20)

    assert results == [True, True]
    assert not marks.wait_for(lambda: False, 0.01)


def test_what_is_forgotten_is_as_if_it_had_never_come() -> None:
    marks = Watermarks()
    marks.grow({"barrier/1": 3, "absent/1/a-0": 3, "absent/10/a-0": 3, "barrier/10": 3})

    marks.forget({"barrier/1"}, {"absent/1/"})

    assert marks.get("barrier/1") == 0
    assert marks.names("absent/", 0) == ["10/a-0"]
    assert marks.get("barrier/10") == 3
