"""A generation as one rank knows it: what is called back when it ends, or stops."""

from __future__ import annotations

import threading

import pytest

import launchpad as lp
from launchpad.collectives.generation import Generation
from launchpad.collectives.membership import Member


def new() -> Generation:
    members = tuple(Member(rank, rank, f"rank-{rank}", 1, "here") for rank in range(2))
    return Generation(1, members, 0, "rank", lambda event: None)


def test_a_callback_that_raises_keeps_no_other_one_from_being_called(
    capfd: pytest.CaptureFixture[str],
) -> None:
    generation, called = new(), threading.Event()
    generation.on_end(lambda error: 1 / 0)
    generation.on_end(lambda error: called.set())

    generation.end(lp.PeerFailed("rank-1 has died"))

    assert called.is_set()
    assert generation.wait_end(0)
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_what_is_to_be_called_at_a_stop_is_called_at_once_if_that_was_before() -> None:
    generation, called = new(), threading.Event()

    generation.note_stop()
    generation.on_stop(called.set)

    assert called.is_set()
