"""Runs measurements one after the other, prints what they find, and writes it down."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.calls import bars, machine
from benchmarks.calls import report as reports
from benchmarks.calls.options import Options

Measurements = dict[str, ModuleType]  # each has measure(options), show(report), perhaps CONTENDERS


def parser(doc: str, rounds: int) -> argparse.ArgumentParser:
    """What all scripts understand."""
    found = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    found.add_argument("--rounds", type=int, default=rounds)
    found.add_argument("--json", type=Path, help="also write the report to this file")
    found.add_argument("--quick", action="store_true", help="seconds; to see that it runs")
    return found


def run(measurements: Measurements, options: argparse.Namespace) -> dict[str, Any]:
    """Prints tables and bars; returns the report, which `--json` also writes."""
    report: dict[str, Any] = {"machine": machine.describe(), "missing": missing(measurements)}
    print(machine.in_words(report["machine"]))
    for name, reason in report["missing"].items():
        print(f"without {name}: {reason}")
    for name, measurement in measurements.items():
        began = time.perf_counter()
        print(f"\n=== {name}: {str(measurement.__doc__).splitlines()[0]}", flush=True)
        report[name] = measurement.measure(
            Options(1 if options.quick else options.rounds, options.quick)
        )
        measurement.show(report[name])
        print(f"({time.perf_counter() - began:.0f} s)", flush=True)
    bars.show(report)
    if options.json:
        reports.write(options.json, report)
    return report


def missing(measurements: Measurements) -> dict[str, str]:
    """The contenders that cannot be measured here, and why."""
    contenders = [c for module in measurements.values() for c in getattr(module, "CONTENDERS", [])]
    return {c.name: reason for c in contenders if (reason := c.why_not())}
