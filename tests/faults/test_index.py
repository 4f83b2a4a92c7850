"""Every fault that is known has a test."""

from __future__ import annotations

from tests.faults import index


def test_every_fault_has_a_test() -> None:
    untested = {n: what for n, what in index.FAULTS.items() if n not in index.tested()}

    assert not untested


def test_every_numbered_test_is_about_a_fault_of_the_list() -> None:
    assert set(index.tested()) <= set(index.FAULTS)


def test_what_threads_are_spared_is_in_the_list() -> None:
    assert set(index.NOT_IN_THREADS) <= set(index.FAULTS)
