"""Checks that an argument given by a user is a number.

numpy's numbers are numbers. NaN isn't a number, and neither is a bool, although Python counts it as an int.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import TypeGuard


def is_number(value: object) -> TypeGuard[float]:
    """Return True if the value is a real number. Infinity is a real number."""
    if isinstance(value, bool):
        return False
    return isinstance(value, Real) and bool(value == value)


def is_whole(value: object, at_least: int) -> TypeGuard[int]:
    """Return True if the value is a whole number that is at least `at_least`.

    A float isn't a whole number, even if it is 2.0: these numbers count things.
    """
    if isinstance(value, bool):
        return False
    return isinstance(value, Integral) and int(value) >= at_least
