"""Nodes and functions for tests of pools, work queues and counters."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import launchpad as lp
from tests.waiting import until

# Functions that a pool runs.


def double(number: int) -> int:
    return 2 * number


def fail_at_7(number: int) -> int:
    if number == 7:
        raise KeyError("seven")
    return number


def worker() -> str:
    return lp.current().name


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_once(path: str) -> str:
    """Kills its worker the first time that it is run."""
    if not Path(path).exists():
        Path(path).touch()
        die()
    return lp.current().name


def wait_until_exists(path: str) -> bool:
    return until(Path(path).exists)


def wait_for_ever() -> None:
    while True:
        time.sleep(0.01)


# Nodes.


def sweep(workers: list[Any], n: int) -> list[Any]:
    """Uses a pool in a node."""
    offset = lp.current().replica_index + 1
    with lp.pool(workers) as pool:
        mapped = list(pool.map(lambda x: x + offset, range(n)))
        futures = [pool.submit(pow, base, 2) for base in range(5)]
        try:
            list(pool.map(fail_at_7, range(20)))
        except KeyError as error:
            remote = type(error.__cause__).__name__
        names: set[str] = set()
        until(lambda: names.add(pool.submit(worker).result(30)) or len(names) == len(workers))
    return [mapped, [future.result(30) for future in futures], remote, sorted(names)]


def do_jobs(queue: lp.WorkQueue, counter: lp.Counter) -> int:
    """Twice a worker ends in the middle of a job."""
    counter = counter.child("worker")
    n = 0
    for lease in queue:
        if lease.job in (5, 20) and lease.attempt == 1:
            raise ValueError("told to die")
        assert lease.done(lease.job * 2)
        counter.increment(jobs=1)
        n += 1
    return n


def wait_in_all_ways(workers: list[Any], queue: lp.WorkQueue, counter: lp.Counter) -> str:
    """Threads that wait; what each of them has raised."""
    stop = lp.stop_event()  # so that this thread is not interrupted
    pool = lp.pool(workers)
    future = pool.submit(wait_for_ever)
    waits = {
        "future": future.result,
        "map": lambda: list(pool.map(wait_until_exists, ["/never"])),
        "shutdown": lambda: pool.shutdown(),
        "take": queue.take,
        "results": lambda: list(queue.results()),
        "counter": lambda: counter.wait_for(steps=1),
    }
    raised: dict[str, str] = {}

    def record(name: str) -> None:
        try:
            waits[name]()
            raised[name] = "returned"
        except BaseException as error:
            raised[name] = type(error).__name__

    threads = [
        threading.Thread(target=record, args=(name,)) for name in waits if name != "shutdown"
    ]
    for thread in threads:
        thread.start()
    until(future.running)
    counter.increment(waiting=1)
    stop.wait()
    for thread in threads:
        thread.join(5)
    record("shutdown")
    print("raised", sorted(raised.items()))
    return ""


def take_and_wait(queue: lp.WorkQueue, path: str) -> Any:
    """Does a job when a file is there."""
    lease = queue.take(30)
    assert lease is not None
    wait_until_exists(path)
    return lease.done("late"), lease.attempt


def count_to(counter: lp.Counter, n: int) -> dict[str, float]:
    totals: dict[str, float] = {}
    for _ in range(n):
        before = totals
        totals = counter.increment(steps=1)
        assert totals["steps"] >= before.get("steps", 0)
        time.sleep(0.002)
    return totals


def do_jobs_slowly(queue: lp.WorkQueue) -> int:
    n = 0
    for lease in queue:
        time.sleep(0.002)
        n += lease.done(lease.job + 1)
    return n


def lock_at_7(number: int) -> Any:
    return threading.Lock() if number == 7 else number


class Unreadable:
    """It can be pickled, and not unpickled."""

    def __reduce__(self) -> Any:
        return refuse_to_be_read, ()


def refuse_to_be_read() -> None:
    raise ValueError("this cannot be read")


def unreadable_at_7(number: int) -> Any:
    return Unreadable() if number == 7 else number


_rows: list[int] = []
_array: list[Any] = []


def same_list(number: int) -> list[int]:
    if number == 0:
        _rows.clear()
    _rows.append(number)
    return _rows


def same_array(number: int) -> Any:
    """Return the same array each time, filled with the number."""
    import numpy as np

    if not _array:
        _array.append(np.zeros(50_000))
    _array[0][:] = number
    return _array[0]


def appended(rows: list[int], number: int, array: Any = None) -> list[int]:
    """Changes what it is given."""
    if array is not None:
        assert not array.any()
        array[:] = 1
    rows.append(number)
    return rows
