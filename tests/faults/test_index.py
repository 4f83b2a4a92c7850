"""Every fault that is known has a test."""

from __future__ import annotations

import re

import pytest

from tests.faults import backends, index


def test_every_fault_has_a_test_and_every_numbered_test_is_about_a_fault_of_the_list() -> None:
    assert set(index.tested()) == set(index.FAULTS)


@pytest.mark.parametrize(
    ("lane", "spared"), [("Ray", index.NOT_ON_RAY), ("Kubernetes", index.NOT_ON_KUBERNETES)]
)
def test_every_fault_of_a_program_that_has_begun_is_tried(
    lane: str, spared: dict[int, str]
) -> None:
    tried = {number for number, lanes in index.tested().items() if lane in lanes}
    begun = {number for number in index.FAULTS if number >= 12}

    assert begun - tried == set(spared)


def test_ci_looks_for_tests_on_a_cluster_wherever_there_are_some() -> None:
    script = (index.TESTS.parent / ".ci" / "on_a_cluster").read_text()
    (folders,) = re.findall(r'^folders="(.*)"', script, flags=re.M)

    assert set(folders.split()) == {f"tests/{name}" for name in backends.ON_KUBERNETES}
