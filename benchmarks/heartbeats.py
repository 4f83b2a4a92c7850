"""Heartbeats that are late are noticed, and no others: `python benchmarks/heartbeats.py`.

no alarm     10 workers send heartbeats, 1,000 in all, while other processes keep all CPUs busy. None of
             them may be taken for silent.
silent       A worker falls silent: asleep; waiting for a lock; in C with the interpreter. It must be noticed
             soon after `heartbeat_s`, its log must show where it was, and it must be started again.

Exits with 1 if one was noticed wrongly, or not at all.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace

import launchpad as lp
from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.programs import FOREVER, launch, replicas

DEADLINE_S = 60.0
SOON_S = 2.0
BEATS_PER_LIMIT = 4  # a worker sends so many within heartbeat_s, however often it calls heartbeat()


def beat(seconds: float) -> float:
    """Compute and say so, for so long. Return the longest that it took between two heartbeats."""
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


def no_alarm(beats: int, heartbeat_s: float, workers: int) -> str:
    burners = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(2 * (os.cpu_count() or 1))
    ]
    seconds = beats / workers * heartbeat_s / BEATS_PER_LIMIT
    policy = replace(FOREVER, heartbeat_s=heartbeat_s)
    program = replicas("beats", workers, lambda: lp.PyNode(beat, seconds), policy)
    try:
        with launch(program) as running:
            longest = max(running.results("beats"))
            attempts = [status.attempt for status in running.status()]
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    if attempts != [1] * workers:
        sys.exit(f"FAILED: a heartbeat was missed: attempts {attempts}")
    return (
        f"no alarm     {beats:,} heartbeats of {workers} workers, {len(burners)} others computing;"
        f" heartbeat_s={heartbeat_s:g}, and {longest:.2f} s at most between two calls"
    )


def fall_silent(how: str) -> tuple[int, float]:
    """Be silent; return the attempt after that, and when it ran."""
    if lp.current().attempt > 1:
        return lp.current().attempt, time.monotonic()
    lp.heartbeat()
    if how == "asleep":
        time.sleep(DEADLINE_S)
    elif how == "waiting for a lock":
        lock = threading.Lock()
        with lock:
            lock.acquire()
    else:
        sum(range(10**13))  # in C, with the interpreter: no thread of this process runs meanwhile
    return 0, 0.0


def silent(how: str, heartbeat_s: float) -> str:
    policy = lp.RestartPolicy(heartbeat_s=heartbeat_s, backoff=0)
    program = replicas("worker", 1, lambda: lp.PyNode(fall_silent, how), policy)
    began = time.monotonic()
    with launch(program) as running:
        ((attempt, at),) = running.results("worker", DEADLINE_S)
        log = running.logs("worker-0")
    took_s = at - began
    if attempt != 2 or "fall_silent" not in log or took_s > heartbeat_s + SOON_S:
        sys.exit(f"FAILED: {how}: attempt {attempt} after {took_s:.1f} s\n{log}")
    return f"silent       {how:22} started again {took_s:.2f} s after the launch, heartbeat_s={heartbeat_s:g}"


def main() -> None:
    """Print what was noticed. Exit with 1 if it was wrong."""
    options = Parser(__doc__, beats=1000, heartbeat_s=1.0).parse_args()
    print(no_alarm(options.beats, options.heartbeat_s, workers=10))
    for how in ("asleep", "waiting for a lock", "in C"):
        print(silent(how, options.heartbeat_s))
    finish(options, {})


if __name__ == "__main__":
    main()
