"""Many lines from many workers: what is lost, what is shown, what it costs.

    python benchmarks/logs.py --workers=20 --rate=10000 --seconds=10

Each worker prints numbered lines at that rate; logs are turned over at 4 MB. Afterwards every line is looked
for in the log files, and in what the launching script has shown. Two take turns to read that: a pipe that
keeps up, and a terminal that sleeps half of the time, so that the launcher must pass lines over and say so.
"""

from __future__ import annotations

import argparse
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

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

_SKIPPED = re.compile(rb"launchpad *\| ([\d,]+) lines of (\S+) \(.* are not shown")


def flood(rate: int, seconds: float) -> None:
    """Prints numbered lines, so many a second; the last line says how long it took."""
    began, printed, total = time.monotonic(), 0, int(rate * seconds)
    while printed < total:
        due = min(total, int((time.monotonic() - began) * rate) + 1)
        for number in range(printed, due):
            print(f"{number:08d} what a worker has to say about its work, in some sixty characters")
        printed = due
        time.sleep(0.002)
    print(f"done after {time.monotonic() - began:.3f} s", flush=True)


def launch(workers: int, rate: int, seconds: float) -> None:
    """The launching script; says on stderr what it has computed itself, and where the logs are."""
    import launchpad as lp

    program = lp.Program("flood")
    with program.group("w"):
        for _ in range(workers):
            program.add_node(lp.PyNode(flood, rate, seconds))
    with lp.launch(program, "local_mp") as running:
        running.wait()
    print(time.process_time(), running.log_directory, file=sys.stderr)


def measure(workers: int, rate: int, seconds: float, reader: str) -> dict[str, float]:
    """One run in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="launchpad-logs-") as directory:
        env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "LAUNCHPAD_LOGGING_DIR": directory,
            "LAUNCHPAD_LOG_MAX_MB": "4",
            "LAUNCHPAD_LOG_FILES": "100000",
            "TERM": "dumb",  # a terminal without colours is easier to read here
        }
        command = [sys.executable, __file__, "--one"]
        command += [f"--workers={workers}", f"--rate={rate}", f"--seconds={seconds}"]
        ours, theirs = os.pipe() if reader == "pipe" else pty.openpty()
        with subprocess.Popen(command, env=env, stdout=theirs, stderr=subprocess.PIPE) as process:
            os.close(theirs)
            shown = _Shown(ours, sleeps=0.0 if reader == "pipe" else seconds / 2)
            assert process.stderr is not None
            cpu_s, logs = process.stderr.read().decode().split()[-2:]
            shown.join()
        return _result(Path(logs), shown, workers, int(rate * seconds), float(cpu_s), seconds)


class _Shown(threading.Thread):
    """Reads what is shown, and counts."""

    def __init__(self, fd: int, sleeps: float) -> None:
        super().__init__()
        self._fd, self._sleeps = fd, sleeps
        self.lines = self.skipped = 0
        self.start()

    def run(self) -> None:
        time.sleep(self._sleeps)
        # A terminal whose other end is closed gives an error in place of an end.
        with contextlib.suppress(OSError), open(self._fd, "rb") as stdout:
            for line in stdout:
                if found := _SKIPPED.match(line):
                    self.skipped += int(found[1].replace(b",", b""))
                elif line.startswith(b"w-"):
                    self.lines += 1


def _result(
    logs: Path, shown: _Shown, workers: int, per_worker: int, cpu_s: float, seconds: float
) -> dict[str, float]:
    from launchpad.launch.logs.log_files import LogFiles

    lost, slowest_s = 0, 0.0
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
        "shown": shown.lines,
        "said_to_be_skipped": shown.skipped,
        "unaccounted": printed - shown.lines - shown.skipped,
        "launcher_cpu": cpu_s / seconds,
    }


def main() -> None:
    """Prints a table; exits with 1 if a line was lost, or neither shown nor said to be passed over."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=20)
    parser.add_argument("--rate", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", action="store_true", help="only launch, once")
    parser.add_argument("--quick", action="store_true", help="seconds; to see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.workers, options.seconds = 2, 1.0
    if options.one:
        launch(options.workers, options.rate, options.seconds)
        return
    print(f"{options.workers} workers, {options.rate:,} lines a second each, {options.seconds:g} s")
    print(
        "reader      lines/s        lost   shown         passed over   unaccounted  launcher's CPUs"
    )
    results = {}
    for reader in ("pipe", "terminal"):
        row = measure(options.workers, options.rate, options.seconds, reader)
        results[reader] = row
        print(
            f"{reader:<10}  {row['lines_per_s']:>9,.0f}  {row['lost']:>8,}  {row['shown']:>10,}"
            f"  {row['said_to_be_skipped']:>12,}  {row['unaccounted']:>12,}"
            f"  {row['launcher_cpu']:>15.2f}",
            flush=True,
        )
    if options.json:
        from benchmarks.harness import command_line as report

        report.write_report(options.json, {"logs": results})
    raise SystemExit(any(row["lost"] or row["unaccounted"] for row in results.values()))


if __name__ == "__main__":
    main()
