"""Kills the launcher, its forkserver, or both at a random moment, again and again, and counts what is left.

    python benchmarks/orphans.py --trials 300

Each trial is a script that launches workers as processes, each with a child of its own; a tenth of these
children leave for a session of their own, every other one of them by a double fork. At a random moment of
its first second, start included, `kill -9` hits the launching script, or the forkserver of its workers, or
both at once, in turns. What is measured is the time until no process is left that the script, or anything it
started, has started: all of them have a mark in their environment. The launching script itself is not waited
for where only the forkserver was killed; it must end by itself soon after. In the end no file may be left in
the directory for sockets, no listening socket, no shared memory.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARK = "LAUNCHPAD_ORPHANS_TRIAL"
LIMIT_S = 0.25
CHECK_EVERY_S = 5.0
VICTIMS = ("launcher", "forkserver", "both")

SCRIPT = """
import subprocess, sys
import launchpad as lp

class Parent:
    def __init__(self, index):
        self.index = index

    def run(self):
        leaves = self.index % 10 == 0
        command = "sleep 1000 & sleep 0.01" if self.index % 20 == 0 else "exec sleep 1000"
        self.child = subprocess.Popen(["sh", "-c", command], start_new_session=leaves)
        lp.wait_for_stop()

    def ping(self):
        return self.index

program = lp.Program("orphans")
with program.group("parent"):
    for i in range({workers}):
        program.add_node(lp.CourierNode(Parent, i))
lp.launch(program, "local_mp", terminal="output_to_files")
"""


@dataclass
class Trial:
    """The result of one kill."""

    victim: str
    after_s: float
    processes: int
    seconds: float
    left: list[str]


def marked(mark: str) -> set[int]:
    """The processes that carry the mark, zombies not counted."""
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                found.add(int(entry.name))
    return found


def children(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, path.read_text().split())
    return found


def forkserver_of(launcher: subprocess.Popen[bytes]) -> int | None:
    """The forkserver's pid, as soon as there is one; None if the launcher ends before."""
    while launcher.poll() is None:
        for subreaper in children(launcher.pid):
            for forkserver in children(subreaper):
                return forkserver
    return None


@contextlib.contextmanager
def launched(number: int, workers: int) -> Iterator[tuple[subprocess.Popen[bytes], str, Path]]:
    """The script of one trial, its mark, and the directory that takes all it puts on the disk."""
    value = f"{os.getpid()}-{number}"
    with tempfile.TemporaryDirectory() as directory:
        env = {**os.environ, MARK: value, "PYTHONPATH": str(ROOT), "TMPDIR": directory}
        env.pop("XDG_RUNTIME_DIR", None)
        command = [sys.executable, "-c", SCRIPT.format(workers=workers)]
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(command, env=env, stdout=quiet, stderr=quiet)
        try:
            yield process, f"{MARK}={value}", Path(directory)
        finally:
            process.kill()
            process.wait()


def trial(number: int, workers: int, victim: str, after_s: float) -> Trial:
    """One kill, and all that is left of it."""
    memory_before = shared_memory()
    with launched(number, workers) as (launcher, mark, directory):
        time.sleep(after_s)
        forkserver = None if victim == "launcher" else forkserver_of(launcher)
        processes = len(marked(mark))
        if forkserver is not None:
            os.kill(forkserver, signal.SIGKILL)
        if victim != "forkserver":
            os.kill(launcher.pid, signal.SIGKILL)
        began = time.monotonic()
        spared = {launcher.pid} if victim == "forkserver" else set()
        left = until_all_are_dead(mark, spared, directory)
        seconds = time.monotonic() - began
        with contextlib.suppress(subprocess.TimeoutExpired):
            launcher.wait(CHECK_EVERY_S)
        left += [f"the launcher {launcher.pid}"] if launcher.poll() is None else []
        left += [f"shared memory {name}" for name in shared_memory() - memory_before]
        left += listening(directory)
    return Trial(victim, after_s, processes, seconds, left)


def until_all_are_dead(mark: str, spared: set[int], directory: Path) -> list[str]:
    """Waits until nothing is left; returns what is left after CHECK_EVERY_S."""
    runtime = directory / f"launchpad-{os.getuid()}"
    deadline = time.monotonic() + CHECK_EVERY_S
    while True:
        left = [f"process {pid}" for pid in marked(mark) - spared]
        left += files_below(runtime)
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.002)


def files_below(directory: Path) -> list[str]:
    """Files and folders; the directory may be removed meanwhile."""
    walked = os.walk(directory)
    return [str(Path(at, name)) for at, folders, names in walked for name in (*folders, *names)]


def shared_memory() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if "launchpad" in name or "courier" in name}


def listening(directory: Path) -> list[str]:
    lines = Path("/proc/net/unix").read_text().splitlines()
    return [f"socket {line.split()[-1]}" for line in lines if str(directory) in line]


def percentile(values: list[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def show(trials: list[Trial]) -> None:
    """A row for each victim, then the trials that failed."""
    print(
        f"{'killed':>10}{'trials':>8}{'processes':>11}{'p50':>9}{'p99':>9}{'worst':>9}{'left':>6}"
    )
    for victim in (*VICTIMS, "all"):
        rows = [t for t in trials if victim in (t.victim, "all")]
        if not rows:
            continue
        times = [t.seconds for t in rows]
        cells = "".join(
            f"{seconds * 1000:>6.0f} ms"
            for seconds in (percentile(times, 50), percentile(times, 99), max(times))
        )
        mean = sum(t.processes for t in rows) / len(rows)
        print(f"{victim:>10}{len(rows):>8}{mean:>11.1f}{cells}{sum(bool(t.left) for t in rows):>6}")
    for t in trials:
        if t.left or t.seconds > LIMIT_S:
            print(
                f"  {t.victim} killed after {t.after_s:.3f} s: {t.seconds * 1000:.0f} ms, left {t.left}"
            )


def main() -> None:
    """Prints the table; exits with 1 if anything was left, or took more than 250 ms."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--trials", "--rounds", type=int, default=60)
    parser.add_argument("--workers", type=int, default=20)
    parser.add_argument("--within-s", type=float, default=1.0, help="the kill comes in this time")
    parser.add_argument("--victims", default=",".join(VICTIMS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="seconds; to see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.trials, options.workers = 3, 4
    chance = random.Random(options.seed)
    victims = options.victims.split(",")
    trials = [
        trial(i, options.workers, victims[i % len(victims)], chance.uniform(0, options.within_s))
        for i in range(options.trials)
    ]
    show(trials)
    late = sum(t.seconds > LIMIT_S for t in trials)
    left = sum(bool(t.left) for t in trials)
    print(
        f"{options.trials} kills with {options.workers} workers: something left {left} times,"
        f" {late} times later than {LIMIT_S * 1000:.0f} ms"
    )
    if options.json:
        from benchmarks.harness import command_line as report

        rows = [vars(t) for t in trials]
        report.write_report(options.json, {"orphans": {"trials": rows, "late": late, "left": left}})
    raise SystemExit(1 if late or left else 0)


if __name__ == "__main__":
    main()
