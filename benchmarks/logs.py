"""The logs of many workers that print many lines: the lines lost, the lines shown, and the cost.

    python benchmarks/logs.py --workers=20 --rate=10000 --seconds=10

Each worker prints numbered lines at that rate; log files are rotated at 4 MB. Afterwards the benchmark looks
for every line in the log files, and counts the lines that the launching script has shown. The launching
script runs twice: once it writes to a pipe whose reader keeps up, once to a terminal whose reader sleeps half
of the time, so that the launcher must skip lines and say so.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import launchpad as lp
from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.figures import Table
from benchmarks.harness.processes import command_apart, environment
from benchmarks.harness.programs import replicas

_SKIPPED = re.compile(rb"launchpad *\| ([\d,]+) lines of (\S+) \(.* are not shown")


def flood(rate: int, seconds: float) -> None:
    """Print numbered lines, `rate` a second; the last line says how long that took."""
    began = time.monotonic()
    n_printed = 0
    total = int(rate * seconds)
    while n_printed < total:
        n_due = min(total, int((time.monotonic() - began) * rate) + 1)
        for number in range(n_printed, n_due):
            print(f"{number:08d} what a worker has to say about its work, in some sixty characters")
        n_printed = n_due
        time.sleep(0.002)
    print(f"done after {time.monotonic() - began:.3f} s", flush=True)


def launch(workers: int, rate: int, seconds: float) -> None:
    """Launch the workers. At the end, print this script's CPU time and the log directory on stderr."""
    with lp.launch(
        replicas("w", workers, lambda: lp.PyNode(flood, rate, seconds)), "local_mp"
    ) as running:
        running.wait()
    print(time.process_time(), running.log_directory, file=sys.stderr)


def measure(workers: int, rate: int, seconds: float, reader: str) -> dict[str, float]:
    """Run the launching script once in a process of its own; return the figures."""
    with tempfile.TemporaryDirectory(prefix="launchpad-logs-") as directory:
        env = environment(
            LAUNCHPAD_LOGGING_DIR=directory,
            LAUNCHPAD_LOG_MAX_MB="4",
            LAUNCHPAD_LOG_FILES="100000",
            TERM="dumb",  # a terminal without colours is easier to read here
        )
        command = command_apart(launch, workers, rate, seconds)
        ours, theirs = os.pipe() if reader == "pipe" else pty.openpty()
        with subprocess.Popen(command, env=env, stdout=theirs, stderr=subprocess.PIPE) as process:
            os.close(theirs)
            screen = _Screen(ours, sleeps=0.0 if reader == "pipe" else seconds / 2)
            assert process.stderr is not None
            cpu_s, logs = process.stderr.read().decode().split()[-2:]
            screen.join()
        return _result(Path(logs), screen, workers, int(rate * seconds), float(cpu_s), seconds)


class _Screen(threading.Thread):
    """A thread that reads the output of the launching script, and counts lines."""

    def __init__(self, fd: int, sleeps: float) -> None:
        super().__init__()
        self._fd = fd
        self._sleeps = sleeps
        self.lines = 0
        self.skipped = 0
        self.start()

    def run(self) -> None:
        time.sleep(self._sleeps)
        # Reading a terminal whose other end is closed raises an error. A pipe would just end.
        with contextlib.suppress(OSError), open(self._fd, "rb") as stdout:
            for line in stdout:
                match = _SKIPPED.match(line)
                if match:
                    self.skipped += int(match[1].replace(b",", b""))
                elif line.startswith(b"w-"):
                    self.lines += 1


def _result(
    logs: Path, screen: _Screen, workers: int, per_worker: int, cpu_s: float, seconds: float
) -> dict[str, float]:
    from launchpad.launch.logs.log_files import LogFiles

    lost = 0
    slowest_s = 0.0
    for i in range(workers):
        *lines, last = LogFiles(logs).text(f"w-{i}").splitlines()
        numbers = [int(line[:8]) for line in lines]
        lost += per_worker - len(set(numbers)) + (numbers != sorted(numbers))
        slowest_s = max(slowest_s, float(last.split()[2]))
    printed = workers * (per_worker + 1)
    return {
        "lines": printed,
        "lines_per_s": printed / slowest_s,
        "lost": lost,
        "shown": screen.lines,
        "said_to_be_skipped": screen.skipped,
        "unaccounted": printed - screen.lines - screen.skipped,
        "launcher_cpu": cpu_s / seconds,
    }


def main() -> None:
    """Print a table; exit with 1 if a line was lost, or neither shown nor reported as skipped."""
    parser = Parser(__doc__, {"workers": 2, "seconds": 1.0}, workers=20, rate=10_000, seconds=10.0)
    options = parser.parse_args()
    print(f"{options.workers} workers, {options.rate:,} lines a second each, {options.seconds:g} s")
    counts = dict.fromkeys(("lost", "shown", "passed over", "unaccounted"), ",")
    heads = {"lines": ",", "lines/s": ",.0f", **counts, "launcher's CPUs": ".2f"}
    table = Table("reader", heads, width=10)
    results = {}
    for reader in ("pipe", "terminal"):
        results[reader] = measure(options.workers, options.rate, options.seconds, reader)
        table.row(reader, *results[reader].values())
    unsound = [name for name, row in results.items() if row["lost"] or row["unaccounted"]]
    finish(options, {"logs": results}, [f"lines are missing, read by a {name}" for name in unsound])


if __name__ == "__main__":
    main()
