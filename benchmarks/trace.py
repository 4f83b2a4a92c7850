"""The cost of a recording to a busy program: `python benchmarks/trace.py`.

calls        Callers that do nothing but call an echo, one call after the other: calls a second while they are
             recorded, to those in the second before, in the same program.
mapreduce    The example, from launch to end: wall time while it is recorded, to that of a run before.

A figure is the median of the rounds, of wall time, with the range; then that of the processors' time, which
says more on a machine that does something else as well. Exits with 1 if both are above 5 %.
"""

from __future__ import annotations

import os
import statistics
import sysconfig
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import psutil

import launchpad as lp
from benchmarks.harness.command_line import Parser, finish
from examples.mapreduce.program import make_program
from examples.mapreduce.text import find_texts

MOST = 0.05


@dataclass
class Slower:
    """By how much, round by round."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def add(self, recorded: Sequence[float], plain: Sequence[float]) -> None:
        self.wall.append(recorded[0] / plain[0] - 1)
        self.cpu.append(recorded[1] / plain[1] - 1)


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


def measure_calls(callers: int, rounds: int, seconds: float) -> tuple[Slower, str]:
    """Return what is lost while calls are recorded, round by round; and how many there were."""
    program = lp.Program("calls")
    echo = program.add_node(lp.CourierNode(Echo), label="echo")
    with program.group("caller"):
        for _ in range(callers):
            program.add_node(lp.PyNode(call, echo))
    slower = Slower()
    rates = []
    traces = []
    with lp.launch(program, "local_mp", terminal="output_to_files") as running:
        client = running.client("echo")
        while client.calls() < 10_000:
            time.sleep(0.1)
        processes = [psutil.Process(row.pid) for row in running.status()]

        def measure(wait: Callable[[float], object]) -> tuple[float, float]:
            """Seconds for each call, while it waits: of wall time, and of processors."""
            cpu_s = cpu_of(processes)
            began = time.perf_counter()
            before = client.calls()
            wait(seconds)
            n = client.calls() - before
            return (time.perf_counter() - began) / n, (cpu_of(processes) - cpu_s) / n

        for _ in range(rounds):
            plain = measure(time.sleep)
            recorded = measure(lambda s: traces.append(running.trace(s)))
            after = measure(time.sleep)
            slower.add(recorded, tuple(map(statistics.mean, zip(plain, after, strict=True))))
            rates.append(1 / plain[0])
    share = sum(t.recorded_calls for t in traces) / sum(t.calls for t in traces)
    return slower, f"{statistics.median(rates):,.0f} calls/s, {share:.1%} of them recorded"


def cpu_of(processes: Sequence[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def measure_mapreduce(rounds: int, texts: Sequence[Path]) -> tuple[Slower, str]:
    """Return by how much longer it takes while it is recorded, round by round."""
    slower = Slower()
    times = []
    recorded = 0
    with ThreadPoolExecutor(1) as pool:
        for number in range(rounds):
            took_s = {}
            for is_traced in (False, True) if number % 2 else (True, False):
                began = time.perf_counter()
                cpu_s = sum(os.times()[:4])
                program = make_program(texts, 4, 2)
                running = lp.launch(program, "local_mp", terminal="output_to_files")
                tracing = pool.submit(running.trace, 60.0) if is_traced else None
                running.wait()
                took_s[is_traced] = time.perf_counter() - began, sum(os.times()[:4]) - cpu_s
                if tracing is not None:
                    recorded += tracing.result().recorded_calls
            slower.add(took_s[True], took_s[False])
            times.append(took_s[False][0])
    return slower, f"{statistics.median(times):.2f} s, {recorded / rounds:,.0f} calls recorded"


def show(what: str, slower: Slower, about: str) -> bool:
    wall = statistics.median(slower.wall)
    cpu = statistics.median(slower.cpu)
    verdict = "" if min(wall, cpu) <= MOST else "   FAILED"
    print(
        f"{what:20} {wall:+7.1%} ({min(slower.wall):+.1%} to {max(slower.wall):+.1%})  processors {cpu:+.1%}"
        f"   {about}{verdict}",
        flush=True,
    )
    return not verdict


def main() -> None:
    # Seconds are of each part of a round of calls, runs of mapreduce.
    options = Parser(__doc__, rounds=15, seconds=1.0, callers=[1, 4], runs=10).parse_args()
    held = True
    for n in options.callers:
        name = f"calls, {n} caller{'s' * (n != 1)}"
        held &= show(name, *measure_calls(n, options.rounds, options.seconds))
    if options.runs:
        texts = find_texts(Path(sysconfig.get_path("stdlib")), "*.py")
        held &= show("mapreduce", *measure_mapreduce(options.runs, texts))
    finish(options, {}, [] if held else ["a recording costs too much"])


if __name__ == "__main__":
    main()
