"""All measurements of calls by name, and the function that runs some of them."""

from __future__ import annotations

import time
from types import ModuleType
from typing import Any

from benchmarks.calls import (
    arrays,
    broadcast,
    coroutines,
    crowd,
    large_futures,
    latency,
    many_to_one,
    on_ray,
    one_at_a_time,
    pipelined,
    small_arrays,
    soak,
    streams,
    threads,
    tls,
)
from benchmarks.calls.bars import BARS
from benchmarks.calls.pairs import Options
from benchmarks.harness import bars, command_line, machine

Measurements = dict[str, ModuleType]  # each has measure(options), show(report), perhaps CONTENDERS

SOAK: Measurements = {"soak": soak}
ON_RAY: Measurements = {"on_ray": on_ray}
SPEED: Measurements = {  # in the order in which they are measured
    "latency": latency,
    "small": small_arrays,
    "pipelined": pipelined,
    "coroutines": coroutines,
    "threads": threads,
    "many_to_one": many_to_one,
    "broadcast": broadcast,
    "arrays": arrays,
    "tls": tls,
    "futures": large_futures,
    "streams": streams,
    "crowd": crowd,
    "one_at_a_time": one_at_a_time,
}


def run(measurements: Measurements, options: Any) -> dict[str, Any]:
    """Run the measurements; print tables and bars, write the report if `--json` is given, and return it."""
    report: dict[str, Any] = {"machine": machine.describe(), "missing": missing(measurements)}
    print(machine.in_words(report["machine"]))
    for name, reason in report["missing"].items():
        print(f"without {name}: {reason}")
    for name, measurement in measurements.items():
        began = time.perf_counter()
        print(f"\n=== {name}: {str(measurement.__doc__).splitlines()[0]}", flush=True)
        rounds = 1 if options.quick else options.rounds
        report[name] = measurement.measure(Options(rounds, options.quick))
        measurement.show(report[name])
        print(f"({time.perf_counter() - began:.0f} s)", flush=True)
    bars.show(report, BARS)
    if options.json:
        command_line.write_report(options.json, report)
    return report


def missing(measurements: Measurements) -> dict[str, str]:
    """Return the contenders that cannot be measured here, with the reason."""
    contenders = [c for module in measurements.values() for c in getattr(module, "CONTENDERS", [])]
    reasons = {contender.name: contender.reason_to_skip() for contender in contenders}
    return {name: reason for name, reason in reasons.items() if reason}
