"""The truth for the pipeline, as formulas."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, pairwise


def best_of_all_cuts(costs: Sequence[float], stages: int) -> tuple[int, ...]:
    """Try all cuts, and return the most even one."""

    def squares(bounds: tuple[int, ...]) -> float:
        return sum(sum(costs[begin:end]) ** 2 for begin, end in pairwise(bounds))

    inner = combinations(range(1, len(costs)), stages - 1)
    return min(((0, *bounds, len(costs)) for bounds in inner), key=squares)


def bubble(stages: int, micro_batches: int) -> Fraction:
    """Return the share of time in which a stage waits."""
    return Fraction(stages - 1, micro_batches + stages - 1)


def kept(widths: Sequence[int], rows: int, rows_with_outputs: int) -> int:
    """Return how many numbers a stage of dense layers keeps: inputs of all rows, and outputs of some."""
    return rows * widths[0] + rows_with_outputs * sum(widths[1:])
