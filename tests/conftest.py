"""What holds for every test: nothing may outlive it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import launchpad as lp


@pytest.fixture(autouse=True)
def nothing_outlives_its_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Processes, threads and descriptors that a test leaves behind are its failure."""
    if request.node.get_closest_marker("leaks_by_nature"):
        yield
        return
    with lp.testing.nothing_left_over():
        yield
