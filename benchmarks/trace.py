"""What a recording costs a busy program: `python benchmarks/trace.py`.

calls        Callers that do nothing but call an echo, one call after the other: calls a second while they are
             recorded, to those in the second before, in the same program.
mapreduce    The example, from launch to end: wall time while it is recorded, to that of a run before.

A figure is the median of the rounds; behind it the range. Exits with 1 if one is above 5 %.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import sysconfig
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import launchpad as lp
from examples.mapreduce.program import make_program
from examples.mapreduce.text import find_texts

MOST = 0.05


class Echo:
    def __init__(self) -> None:
        self._calls = 0

    def echo(self, value: int) -> int:
        self._calls += 1
        return value

    def calls(self) -> int:
        return self._calls


def call(echo: lp.CourierClient[Echo]) -> None:
    while not lp.stop_event().is_set():
        for number in range(100):
            echo.echo(number)


def measure_calls(callers: int, rounds: int, seconds: float) -> tuple[list[float], str]:
    """By how much fewer calls there are while they are recorded, round by round; and how many there were."""
    program = lp.Program("calls")
    echo = program.add_node(lp.CourierNode(Echo), label="echo")
    with program.group("caller"):
        for _ in range(callers):
            program.add_node(lp.PyNode(call, echo))
    ratios, rates, traces = [], [], []
    with lp.launch(program, "local_mp", terminal="output_to_files") as running:
        client = running.client("echo")
        while client.calls() < 10_000:
            time.sleep(0.1)
        for _ in range(rounds):
            plain = rate_of(client, time.sleep, seconds)
            recorded = rate_of(client, lambda s: traces.append(running.trace(s)), seconds)
            after = rate_of(client, time.sleep, seconds)
            ratios.append(1 - recorded / statistics.mean((plain, after)))
            rates.append(plain)
    share = sum(t.recorded_calls for t in traces) / sum(t.calls for t in traces)
    return ratios, f"{statistics.median(rates):,.0f} calls/s, {share:.1%} of them recorded"


def rate_of(client: Any, wait: Any, seconds: float) -> float:
    """Calls a second, while it waits."""
    began, before = time.perf_counter(), client.calls()
    wait(seconds)
    return float((client.calls() - before) / (time.perf_counter() - began))


def measure_mapreduce(rounds: int, texts: Sequence[Path]) -> tuple[list[float], str]:
    """By how much longer it takes while it is recorded, round by round."""
    ratios, times, recorded = [], [], 0
    with ThreadPoolExecutor(1) as pool:
        for number in range(rounds):
            took_s = {}
            for is_traced in (False, True) if number % 2 else (True, False):
                began = time.perf_counter()
                program = make_program(texts, 4, 2)
                running = lp.launch(program, "local_mp", terminal="output_to_files")
                tracing = pool.submit(running.trace, 60.0) if is_traced else None
                running.wait()
                took_s[is_traced] = time.perf_counter() - began
                if tracing is not None:
                    recorded += tracing.result().recorded_calls
            ratios.append(took_s[True] / took_s[False] - 1)
            times.append(took_s[False])
    return ratios, f"{statistics.median(times):.2f} s, {recorded / rounds:,.0f} calls recorded"


def show(what: str, ratios: Sequence[float], about: str) -> bool:
    median = statistics.median(ratios)
    verdict = "" if median <= MOST else "   FAILED"
    lowest, highest = min(ratios), max(ratios)
    print(
        f"{what:24} {median:+7.1%}  ({lowest:+.1%} to {highest:+.1%})  {about}{verdict}", flush=True
    )
    return not verdict


def main() -> None:
    """Prints what was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="of each part of a round of calls"
    )
    parser.add_argument("--callers", type=int, nargs="*", default=[1, 4])
    parser.add_argument("--runs", type=int, default=10, help="of mapreduce, with and without")
    options = parser.parse_args()
    held = True
    for n in options.callers:
        name = f"calls, {n} caller{'s' * (n != 1)}"
        held &= show(name, *measure_calls(n, options.rounds, options.seconds))
    if options.runs:
        texts = find_texts(Path(sysconfig.get_path("stdlib")), "*.py")
        held &= show("mapreduce", *measure_mapreduce(options.runs, texts))
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
