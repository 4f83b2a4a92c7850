"""What counts as a number among the arguments that a user gives.

A bool is none, though Python counts it as an int, and neither is NaN. numpy's numbers are.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import TypeGuard


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a real number; infinity is one."""
    if isinstance(value, bool):
        return False
    return isinstance(value, Real) and bool(value == value)


def is_whole(value: object, at_least: int) -> TypeGuard[int]:
    """Return whether a value is a whole number of at least so much; 2.0 is not, as it counts nothing."""
    if isinstance(value, bool):
        return False
    return isinstance(value, Integral) and int(value) >= at_least
