"""The leftovers of a program whose launcher, forkserver, or both are killed at a random moment.

    python benchmarks/orphans.py --trials 300

Each trial runs a script that launches workers as processes, each with a child of its own. A tenth of these
children move to a session of their own, every other one of them by a double fork. At a random moment of the
script's first second, which includes its start, the benchmark kills (SIGKILL) the launching script, the
forkserver of its workers, or both, in turns. Then it measures the time until none of the script's processes
is left. It finds them by a mark in their environment, which they inherit. If only the forkserver was killed,
that time excludes the launching script, which must end by itself soon after. At the end no file may be left
in the directory for sockets, and no listening socket and no shared memory.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import holdings
from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.figures import Table, percentiles
from benchmarks.harness.processes import wait_until

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


def forkserver_of(launcher: subprocess.Popen[bytes]) -> int | None:
    """Wait for the forkserver, and return its pid; return None if the launcher ends first."""
    while launcher.poll() is None:
        for subreaper in holdings.children(launcher.pid):
            for forkserver in holdings.children(subreaper):
                return forkserver
    return None


def trial(workers: int, victim: str, after_s: float) -> Trial:
    """Kill once; return the time, and what is left."""
    memory_before = shared_memory()
    source = SCRIPT.format(workers=workers)
    silent = subprocess.DEVNULL
    with holdings.MarkedScript(source, stdout=silent, stderr=silent) as script:
        launcher = script.process
        time.sleep(after_s)
        forkserver = None if victim == "launcher" else forkserver_of(launcher)
        processes = len(script.processes())
        if forkserver is not None:
            os.kill(forkserver, signal.SIGKILL)
        if victim != "forkserver":
            os.kill(launcher.pid, signal.SIGKILL)
        began = time.monotonic()
        spared = {launcher.pid} if victim == "forkserver" else set()
        wait_until(lambda: not script.left_over(spared), CHECK_EVERY_S)
        seconds = time.monotonic() - began
        leftovers = script.left_over(spared)
        with contextlib.suppress(subprocess.TimeoutExpired):
            launcher.wait(CHECK_EVERY_S)
        leftovers += [f"the launcher {launcher.pid}"] if launcher.poll() is None else []
        leftovers += [f"shared memory {name}" for name in shared_memory() - memory_before]
        leftovers += listening(script.directory)
    return Trial(victim, after_s, processes, seconds, leftovers)


def shared_memory() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if "launchpad" in name or "courier" in name}


def listening(directory: str) -> list[str]:
    lines = Path("/proc/net/unix").read_text().splitlines()
    return [f"socket {line.split()[-1]}" for line in lines if directory in line]


def show(trials: list[Trial]) -> list[str]:
    """Print a row for each victim; return a description of each trial that failed."""
    times = dict.fromkeys(("p50 ms", "p99 ms", "worst ms"), ".0f")
    table = Table("killed", {"trials": "", "processes": ".1f", **times, "left": ""}, width=12)
    for victim in (*VICTIMS, "all"):
        rows = [t for t in trials if victim in (t.victim, "all")]
        if not rows:
            continue
        ms = [t.seconds * 1000 for t in rows]
        mean = sum(t.processes for t in rows) / len(rows)
        n_left = sum(bool(t.left) for t in rows)
        table.row(victim, len(rows), mean, *percentiles(ms).values(), n_left)
    return [
        f"{t.victim} killed after {t.after_s:.3f} s: {t.seconds * 1000:.0f} ms, left {t.left}"
        for t in trials
        if t.left or t.seconds > LIMIT_S
    ]


def main() -> None:
    """Print the table; exit with 1 if anything was left, or if a trial took more than 250 ms."""
    parser = Parser(
        __doc__,
        {"trials": 3, "workers": 4},
        workers=20,
        within_s=1.0,  # the kill comes in this time
        victims=list(VICTIMS),
        trials=60,
        seed=0,
    )
    options = parser.parse_args()
    chance = random.Random(options.seed)
    victims = options.victims
    trials = [
        trial(options.workers, victims[i % len(victims)], chance.uniform(0, options.within_s))
        for i in range(options.trials)
    ]
    faults = show(trials)
    n_late = sum(t.seconds > LIMIT_S for t in trials)
    n_left = sum(bool(t.left) for t in trials)
    print(
        f"{options.trials} kills with {options.workers} workers: something left {n_left} times,"
        f" {n_late} times later than {LIMIT_S * 1000:.0f} ms"
    )
    rows = [vars(t) for t in trials]
    finish(options, {"orphans": {"trials": rows, "late": n_late, "left": n_left}}, faults)


if __name__ == "__main__":
    main()
