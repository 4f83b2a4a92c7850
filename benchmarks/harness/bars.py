"""The promises, beside what was measured."""

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
    """One promise, and where in a report its figure is: `latency/unpinned/courier/p50_us`.

    Where the figure is a spread, its median counts.
    """

    what: str
    figure: str
    sign: str
    limit: float
    unit: str = ""

    def figure_in(self, report: dict[str, Any]) -> float | None:
        """Return the figure; None where it was not measured."""
        value: Any = report
        for key in self.figure.split("/"):
            if not isinstance(value, dict) or key not in value:
                return None
            value = value[key]
        return float(value["median"] if isinstance(value, dict) else value)

    def verdict(self, report: dict[str, Any]) -> str:
        """Return whether it holds, in words."""
        figure = self.figure_in(report)
        if figure is None:
            return "not measured"
        return HOLDS if _COMPARE[self.sign](figure, self.limit) else "NO"

    def line(self, report: dict[str, Any]) -> str:
        """Return the promise, the figure, and the verdict."""
        figure = self.figure_in(report)
        value = "–"
        if figure is not None:
            value = f"{figure:,.2f}" if figure < 1000 else f"{figure:,.0f}"
        limit = f"{self.sign} {self.limit:,g} {self.unit}"
        return f"{self.what:58}{value:>10}   {limit:18}{self.verdict(report)}"


def parse(table: str) -> tuple[Bar, ...]:
    """Return the bars of a table whose lines are `what | figure | sign limit unit`."""
    bars = []
    for line in table.strip().splitlines():
        title, figure, promise = (cell.strip() for cell in line.split("|"))
        sign, limit, *unit = promise.split()
        bars.append(Bar(title, figure, sign, float(limit), " ".join(unit)))
    return tuple(bars)


def about(report: dict[str, Any], bars: Iterable[Bar]) -> list[Bar]:
    """Return the bars of what the report is about."""
    return [bar for bar in bars if bar.figure.partition("/")[0] in report]


def misses(report: dict[str, Any], bars: Iterable[Bar]) -> list[str]:
    """Return the promises that do not hold; what was not measured does not."""
    return [bar.what for bar in about(report, bars) if bar.verdict(report) != HOLDS]


def show(report: dict[str, Any], bars: Iterable[Bar]) -> None:
    """Print a line for each bar of what the report is about."""
    print("\n=== what we promise")
    for bar in about(report, bars):
        print(bar.line(report))


def finish(
    options: Any, report: dict[str, Any], bars: Iterable[Bar], faults: Iterable[str] = ()
) -> NoReturn:
    """Print the promises, write the report if one is wanted, and exit; with 1 if one does not hold."""
    bars = tuple(bars)
    show(report, bars)
    command_line.finish(options, report, [*misses(report, bars), *faults])
