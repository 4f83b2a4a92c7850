"""Every fault that is known has a test."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.faults import index


def test_every_fault_has_a_test() -> None:
    untested = {n: what for n, what in index.FAULTS.items() if n not in index.tested()}

    assert not untested


def test_every_numbered_test_is_about_a_fault_of_the_list() -> None:
    assert set(index.tested()) <= set(index.FAULTS)


def test_what_threads_are_spared_is_in_the_list() -> None:
    assert set(index.NOT_IN_THREADS) <= set(index.FAULTS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("marks", "spared"),
    [("fault and ray", index.NOT_ON_RAY), ("fault and kubernetes", index.NOT_ON_KUBERNETES)],
)
def test_every_fault_of_a_program_that_has_begun_is_tried_but_for_those_that_are_named(
    marks: str, spared: dict[int, str]
) -> None:
    pytest.importorskip("ray")
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", marks]

    listed = subprocess.run(
        command, cwd=index.TESTS.parent, capture_output=True, text=True, timeout=100
    )

    names = [line.rpartition("::")[2] for line in listed.stdout.splitlines() if "::" in line]
    tried = {number for name in names for number in index.numbers(name)}
    begun = {number for number in index.FAULTS if number >= 12}
    assert begun - tried == set(spared), listed.stdout
