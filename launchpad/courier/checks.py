"""Checks that an argument given by a user is a number.

numpy's numbers are numbers. NaN isn't, nor is a bool, although Python counts it as an int.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import TypeGuard


def is_number(value: object) -> TypeGuard[float]:
    """Return True if the value is a real number; infinity is one."""
    if isinstance(value, bool):
        return False
    return isinstance(value, Real) and bool(value == value)


def is_whole(value: object, at_least: int) -> TypeGuard[int]:
    """Return True if the value is a whole number, and not less than `at_least`.

    A float isn't, even if it is 2.0: these numbers count things.
    """
    if isinstance(value, bool):
        return False
    return isinstance(value, Integral) and int(value) >= at_least
