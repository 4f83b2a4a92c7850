from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from launchpad.courier.checks import is_number, is_whole


@pytest.mark.parametrize("value", [0, -1.5, math.inf, Fraction(1, 3), np.float32(0.5), np.int64(3)])
def test_a_real_number_is_one(value: Any) -> None:
    assert is_number(value)


@pytest.mark.parametrize(
    "value", [True, np.bool_(True), math.nan, np.float32("nan"), "1", None, 1j, [1]], ids=repr
)
def test_what_is_no_number_is_refused(value: Any) -> None:
    assert not is_number(value)


@pytest.mark.parametrize("value", [1, 2**70, np.int64(3)], ids=repr)
def test_a_whole_number_counts(value: Any) -> None:
    assert is_whole(value, at_least=1)


@pytest.mark.parametrize("value", [0, -1, True, 2.0, math.nan, "2", None], ids=repr)
def test_what_counts_nothing_is_refused(value: Any) -> None:
    assert not is_whole(value, at_least=1)
