"""Nested values arrive as pickle and numpy would give them, or are refused."""

from __future__ import annotations

import pytest

from benchmarks import nested_values


@pytest.mark.parametrize("way", [*nested_values.WAYS, "collective"])
def test_a_value_arrives_as_it_was_by(way: str) -> None:
    nested_values.search(way, 100, seed=0)
