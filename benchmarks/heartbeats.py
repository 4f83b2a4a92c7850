"""A check that heartbeats on a busy machine raise no false alarm: `python benchmarks/heartbeats.py`.

Ten workers send heartbeats, 1,000 in all, while other processes keep all CPUs busy. The supervisor must not
take any of the workers for silent. The script exits with 1 if it did.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace

import launchpad as lp
from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.programs import FOREVER, launch, replicas

BEATS_PER_LIMIT = (
    4  # a worker sends this many within heartbeat_s, even if it calls heartbeat() more often
)


def beat(seconds: float) -> float:
    """Compute and send heartbeats until the seconds are over; return the longest time between two."""
    last = time.monotonic()
    ends_at = last + seconds
    longest = 0.0
    while last < ends_at:
        lp.heartbeat()
        sum(range(20_000))
        now = time.monotonic()
        longest = max(longest, now - last)
        last = now
    return longest


def main() -> None:
    options = Parser(__doc__, beats=1000, heartbeat_s=1.0, workers=10).parse_args()
    burners = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(2 * (os.cpu_count() or 1))
    ]
    seconds = options.beats / options.workers * options.heartbeat_s / BEATS_PER_LIMIT
    policy = replace(FOREVER, heartbeat_s=options.heartbeat_s)
    program = replicas("beats", options.workers, lambda: lp.PyNode(beat, seconds), policy)
    try:
        with launch(program) as running:
            longest_s = max(running.results("beats"))
            false_alarms = sum(status.attempt - 1 for status in running.status())
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    print(
        f"{options.beats:,} heartbeats of {options.workers} workers, {len(burners)} others computing;"
        f" heartbeat_s={options.heartbeat_s:g}, and {longest_s:.2f} s at most between two calls:"
        f" {false_alarms} false alarms"
    )
    figures = {"false_alarms": false_alarms, "longest_s": longest_s}
    finish(options, {"heartbeats": figures}, ["a heartbeat was missed"] * bool(false_alarms))


if __name__ == "__main__":
    main()
