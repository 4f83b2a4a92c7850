"""Kills the launching script at a random moment, again and again, and counts what is left.

    python benchmarks/orphans.py --trials 50

Each trial is a script that launches workers as processes, each with a child of its own. After `kill -9`
of the script the processes that it, or anything it started, has left are looked for by a mark in their
environment, until there are none; then its runtime directory (sockets, lock) must be gone too.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

MARK = "LAUNCHPAD_ORPHANS_TRIAL"
LIMIT_S = 0.25

SCRIPT = """
import subprocess
import launchpad as lp

class Parent:
    def run(self):
        subprocess.Popen(["sleep", "1000"])
        lp.wait_for_stop()

program = lp.Program("orphans")
with program.group("parent"):
    for _ in range({workers}):
        program.add_node(lp.PyClassNode(Parent))
lp.launch(program, "local_mp", terminal="output_to_files")
"""


def marked(mark: str) -> list[int]:
    """The processes that carry the mark, zombies not counted."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def trial(number: int, workers: int, delay_s: float) -> float:
    """Seconds from the kill until nothing is left; raises if anything outlives five seconds."""
    mark = f"{MARK}={os.getpid()}-{number}"
    with tempfile.TemporaryDirectory() as directory:
        env = {
            **os.environ,
            MARK: mark.partition("=")[2],
            "PYTHONPATH": str(ROOT),
            "TMPDIR": directory,
        }
        env.pop("XDG_RUNTIME_DIR", None)
        command = [sys.executable, "-c", SCRIPT.format(workers=workers)]
        process = subprocess.Popen(
            command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(delay_s)
        process.kill()
        began = time.monotonic()
        process.wait()
        return _until_nothing_is_left(mark, Path(directory), began)


def _until_nothing_is_left(mark: str, directory: Path, began: float) -> float:
    runtime = directory / f"launchpad-{os.getuid()}"
    while True:
        processes = marked(mark)
        files = [name for _, folders, names in os.walk(runtime) for name in (*folders, *names)]
        if not processes and not files:
            return time.monotonic() - began
        if time.monotonic() - began > 5:
            raise SystemExit(f"left after 5 s: processes {processes}, files {files}")
        time.sleep(0.002)


def main() -> None:
    """Prints how long it took; exits with 1 if any trial took more than 250 ms."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--trials", "--rounds", type=int, default=50)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="seconds; to see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.trials = 2
    chance = random.Random(options.seed)
    times = [trial(i, options.workers, chance.uniform(0.0, 1.0)) for i in range(options.trials)]
    late = sum(seconds > LIMIT_S for seconds in times)
    print(
        f"{options.trials} kills of the launching script with {options.workers} workers: nothing left after"
        f" {statistics.median(times) * 1000:.0f} ms (median), {max(times) * 1000:.0f} ms (worst);"
        f" {late} over {LIMIT_S * 1000:.0f} ms"
    )
    if options.json:
        from benchmarks.calls import report

        report.write(options.json, {"orphans": {"seconds": times, "late": late}})
    raise SystemExit(1 if late else 0)


if __name__ == "__main__":
    main()
