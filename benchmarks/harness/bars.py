"""The promises, beside the measured figures."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from benchmarks.harness import command_line

_COMPARE = {"≤": operator.le, "≥": operator.ge, "=": operator.eq}
HOLDS = "yes"


@dataclass(frozen=True)
class Bar:
    """One promise, and the path of its figure in a report: `latency/unpinned/courier/p50_us`.

    If the figure is a spread, its median counts.
    """

    title: str
    figure: str
    sign: str
    limit: float
    unit: str = ""

    def figure_in(self, report: dict[str, Any]) -> float | None:
        """Return the figure, or None if it was not measured."""
        value: Any = report
        for key in self.figure.split("/"):
            if not isinstance(value, dict) or key not in value:
                return None
            value = value[key]
        return float(value["median"] if isinstance(value, dict) else value)

    def verdict(self, report: dict[str, Any]) -> str:
        """Return the verdict in words: the promise holds, or not, or was not measured."""
        figure = self.figure_in(report)
        if figure is None:
            return "not measured"
        return HOLDS if _COMPARE[self.sign](figure, self.limit) else "NO"

    def line(self, report: dict[str, Any]) -> str:
        """Return a line for the table: the promise, the figure, and the verdict."""
        figure = self.figure_in(report)
        value = "–"
        if figure is not None:
            value = f"{figure:,.2f}" if figure < 1000 else f"{figure:,.0f}"
        limit = f"{self.sign} {self.limit:,g} {self.unit}"
        return f"{self.title:58}{value:>10}   {limit:18}{self.verdict(report)}"


def parse(table: str) -> tuple[Bar, ...]:
    """Return the bars of a table whose lines are `title | figure | sign limit unit`."""
    bars = []
    for line in table.strip().splitlines():
        title, figure, promise = (cell.strip() for cell in line.split("|"))
        sign, limit, *unit = promise.split()
        bars.append(Bar(title, figure, sign, float(limit), " ".join(unit)))
    return tuple(bars)


def about(report: dict[str, Any], bars: Iterable[Bar]) -> list[Bar]:
    """Return those bars whose measurement is in the report."""
    return [bar for bar in bars if bar.figure.partition("/")[0] in report]


def misses(report: dict[str, Any], bars: Iterable[Bar]) -> list[str]:
    """Return the promises that do not hold. A promise whose figure is missing does not hold."""
    return [bar.title for bar in about(report, bars) if bar.verdict(report) != HOLDS]


def show(report: dict[str, Any], bars: Iterable[Bar]) -> None:
    """Print a line for each bar whose measurement is in the report."""
    print("\n=== what we promise")
    for bar in about(report, bars):
        print(bar.line(report))


def finish(
    options: Any, report: dict[str, Any], bars: Iterable[Bar], faults: Iterable[str] = ()
) -> NoReturn:
    """Print the promises, write the report if `--json` is given, and exit: with 1 if a promise fails."""
    bars = tuple(bars)
    show(report, bars)
    command_line.finish(options, report, [*misses(report, bars), *faults])
