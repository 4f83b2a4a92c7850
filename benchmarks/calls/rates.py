"""Calls per second of several contenders, beside those of the ones that they are compared with."""

from __future__ import annotations

from typing import Any

from benchmarks.calls.spread import ratios, spread, with_range


def rates_and_ratios(rates: dict[str, list[float]], bases: list[str]) -> dict[str, Any]:
    """Of each contender: calls/s, and these to those of the bases that took part."""
    return {
        name: {"calls_per_s": spread(each)}
        | {
            f"to_{base.replace(' ', '_')}": ratios(each, rates[base])
            for base in bases
            if base in rates
        }
        for name, each in rates.items()
    }


def show_rates(where: str, rows: dict[str, Any]) -> None:
    names = [name for name in next(iter(rows.values())) if name.startswith("to_")]
    heads = "".join(f"{name.replace('_', ' '):>19}{'(range)':>20}" for name in names)
    print(f"\n{where:28}{'calls/s':>11}{'(range)':>22}{heads}")
    for name, row in rows.items():
        to_bases = "".join(f"{'':6}{with_range(row[base], 2)}" for base in names)
        print(f"{name:28}{with_range(row['calls_per_s'], 0)}{to_bases}")
