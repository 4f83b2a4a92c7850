"""Rounds in which contenders take turns, statistics of their figures, and tables."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
Spread = dict[str, float]
RANGE = " (range)"


def in_turns(
    contenders: Mapping[str, Callable[[], T]], rounds: int, *, warm_up: int = 0
) -> dict[str, list[T]]:
    """Let each contender measure once a round; return the figures of each, by name.

    Contenders take turns so that other load on the machine hits all of them alike. Every second round has
    the reverse order. The rounds to warm up are not counted.
    """
    figures: dict[str, list[T]] = {name: [] for name in contenders}
    for number in range(-warm_up, rounds):
        order = list(contenders.items())
        for name, measure in reversed(order) if number % 2 else order:
            figure = measure()
            if number >= 0:
                figures[name].append(figure)
    return figures


def timed(act: Callable[[], object]) -> Callable[[], float]:
    """Return a function that calls `act` and returns the seconds, without those to free the result."""

    def measure() -> float:
        began = time.perf_counter()
        result = act()
        took_s = time.perf_counter() - began
        del result
        return took_s

    return measure


def spread(values: Iterable[float]) -> Spread:
    """Return the median of the rounds, with the range."""
    numbers = list(values)
    return {"median": statistics.median(numbers), "min": min(numbers), "max": max(numbers)}


def ratios(values: Sequence[float], base: Sequence[float]) -> Spread:
    """Return the spread of the ratios, each of two values of the same round."""
    return spread(value / base_value for value, base_value in zip(values, base, strict=True))


def percentile(values: Iterable[float], percent: float) -> float:
    """Return the value below which this percentage of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def percentiles(values: Iterable[float], unit: str = "") -> dict[str, float]:
    """Return p50, p99 and max."""
    numbers = list(values)
    figures = {"p50": percentile(numbers, 50), "p99": percentile(numbers, 99), "max": max(numbers)}
    return {f"{name}{unit}": value for name, value in figures.items()}


def summary(rounds: Sequence[Mapping[str, float]]) -> dict[str, Spread]:
    """Return the spread of each figure over the rounds."""
    return {figure: spread(turn[figure] for turn in rounds) for figure in rounds[0]}


class Table:
    """A table that is printed row by row.

    A figure is a number, a text, or a spread. For a spread the table has the median, and in a column
    `… (range)` the range, too. None is a dash.

    Args:
        title: The head of the column of names.
        columns: Head of a column → format of its figures.
        width: The width of the column of names, in characters.
    """

    def __init__(self, title: str, columns: Mapping[str, str], width: int = 20) -> None:
        self._columns = dict(columns)
        self._width = width
        print(f"{title:{width}}" + "".join(f"{head:>{self._width_of(head)}}" for head in columns))

    def row(self, name: object, *figures: Any) -> None:
        """Print a row."""
        cells = zip(self._columns.items(), figures, strict=True)
        texts = [
            f"{_shown(figure, *column):>{self._width_of(column[0])}}" for column, figure in cells
        ]
        print(f"{name!s:{self._width}}" + "".join(texts), flush=True)

    def _width_of(self, head: str) -> int:
        return 30 if head.endswith(RANGE) else max(len(head) + 2, 11)


def _shown(figure: Any, head: str, spec: str) -> str:
    if figure is None:
        return "–"
    if isinstance(figure, dict):
        text = format(figure["median"], spec)
        if not head.endswith(RANGE):
            return text
        return f"{text} ({figure['min']:{spec}} to {figure['max']:{spec}})"
    return str(figure) if isinstance(figure, str) else format(figure, spec)
