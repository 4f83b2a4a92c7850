"""The median of the rounds, with the range; and ratios, which compare within a round."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

Spread = dict[str, float]


def spread(values: Sequence[float]) -> Spread:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def ratios(values: Sequence[float], base: Sequence[float]) -> Spread:
    return spread([value / other for value, other in zip(values, base, strict=True)])


def with_range(found: Spread, digits: int = 1) -> str:
    """`12.3 (11.9 to 14.0)`, aligned."""
    low, high = f"{found['min']:,.{digits}f}", f"{found['max']:,.{digits}f}"
    return f"{found['median']:11,.{digits}f}{f'({low} to {high})':>22}"
