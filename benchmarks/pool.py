"""The speed of `lp.pool` beside the standard library's pools, and its results while workers are killed.

    python benchmarks/pool.py
    python benchmarks/pool.py --chaos --jobs 100000 --kills 50

map      `lp.pool`, `multiprocessing.Pool.map` and `ProcessPoolExecutor.map` take turns to run the same jobs
         of 1 ms, with the same number of worker processes. There are two kinds of jobs: one computes, one
         waits. We promise at most 1.2 times the time of `multiprocessing.Pool`, and of `ProcessPoolExecutor`
         with its default chunks and with the chunks of `multiprocessing.Pool`.
chaos    `map` and `submit` run jobs that may run twice, while workers are killed (SIGKILL) at random moments.
         Each job must have exactly one result, and the right one.

The script exits with 1 if a promise does not hold.
"""

from __future__ import annotations

import functools
import math
import multiprocessing
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from typing import Any

import launchpad as lp
from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.figures import Table, in_turns, ratios, timed
from benchmarks.harness.programs import FOREVER, launch, replicas

MOST = 1.2
JOB_S = 0.001
Map = Callable[[Callable[[int], int], range], Any]


def compute(number: int) -> int:
    """Compute for 1 ms of this thread's CPU time, which is the same work on a busy machine."""
    end = time.thread_time() + JOB_S
    while time.thread_time() < end:
        pass
    return 2 * number


def wait(number: int) -> int:
    time.sleep(JOB_S)
    return 2 * number


def workers(n: int) -> lp.Running:
    return launch(replicas("worker", n, lp.PoolNode, FOREVER))


def compare(n_workers: int, n_jobs: int, rounds: int) -> bool:
    """Print the table; return True if the promise holds."""
    context = multiprocessing.get_context("fork")
    with ExitStack() as stack:
        theirs = stack.enter_context(context.Pool(n_workers))
        executor = stack.enter_context(ProcessPoolExecutor(n_workers, context))
        list(executor.map(wait, range(n_workers)))  # start its processes
        running = stack.enter_context(workers(n_workers))
        ours = stack.enter_context(lp.pool(running.clients("worker")))
        chunk = math.ceil(n_jobs / (4 * n_workers))
        contenders: dict[str, Map] = {
            "lp.pool": ours.map,
            "multiprocessing.Pool": theirs.map,
            "ProcessPoolExecutor": executor.map,
            f"ProcessPoolExecutor, chunks of {chunk}": functools.partial(
                executor.map, chunksize=chunk
            ),
        }
        worst = 0.0
        for job in (compute, wait):

            def check(map_jobs: Map, job: Callable[[int], int] = job) -> None:
                assert list(map_jobs(job, range(n_jobs))) == [2 * i for i in range(n_jobs)]

            ways = {
                name: timed(functools.partial(check, map_jobs))
                for name, map_jobs in contenders.items()
            }
            times = in_turns(ways, rounds, warm_up=1)
            title = f"{n_jobs} jobs of 1 ms that {job.__name__}, {n_workers} workers"
            table = Table(title, {"s": ".3f", "lp.pool takes … of it": ".2f"}, width=44)
            for name, seconds in times.items():
                ratio = ratios(times["lp.pool"], seconds)["median"]
                table.row(f"  {name}", statistics.median(seconds), ratio)
                worst = max(worst, ratio)
    print(f"at most {MOST:g} times their time: {'yes' if worst <= MOST else 'NO'}")
    return worst <= MOST


def survive(n_workers: int, n_jobs: int, n_kills: int, seed: int) -> bool:
    """Run jobs while workers are killed; return True if each has exactly one result, and the right one."""
    began = time.monotonic()
    numbers = range(n_jobs)
    with workers(n_workers) as running, lp.pool(running.clients("worker"), idempotent=True) as pool:
        with lp.testing.KillWorkers(
            running, ["worker"], seed=seed, every_s=0.05, chance=0.2, at_most=n_kills
        ) as kills:
            n_mapped = n_jobs // 2
            mapped = list(pool.map(compute, numbers[:n_mapped]))
            n_set = [0] * n_jobs

            def count(number: int, future: Any) -> None:
                n_set[number] += 1

            futures = [pool.submit(compute, number) for number in numbers[n_mapped:]]
            for number, future in enumerate(futures):
                future.add_done_callback(functools.partial(count, number))
            submitted = [future.result() for future in futures]
            # A quick run is over before all the kills. Run more jobs, so that the rest hit some.
            while len(kills.done) < n_kills:
                assert sum(pool.map(compute, range(100))) == 9900
        attempts = sum(status.attempt for status in running.status())
    took_s = time.monotonic() - began
    is_whole = mapped + submitted == [2 * number for number in numbers]
    twice = sum(n > 1 for n in n_set)
    print(
        f"{n_jobs} jobs of 1 ms, half by map and half by submit, {n_workers} workers,"
        f" {len(kills.done)} kills, {attempts} starts, {took_s:.1f} s"
    )
    print(f"all results, in order: {'yes' if is_whole else 'NO'}; twice: {twice}")
    return is_whole and not twice


def main() -> None:
    options = Parser(
        __doc__,
        {"rounds": 1, "kills": 3},
        workers=2,
        jobs=0,  # 0: 2000 for map, 100000 for chaos
        rounds=7,
        kills=50,
        seed=17,
        map=False,  # only the comparison
        chaos=False,  # only the kills
    ).parse_args()
    n_map = options.jobs or (200 if options.quick else 2000)
    n_chaos = options.jobs or (1000 if options.quick else 100_000)
    faults = []
    # A quick comparison proves nothing.
    if (
        not options.chaos
        and not compare(options.workers, n_map, options.rounds)
        and not options.quick
    ):
        faults.append("lp.pool takes too long")
    if not options.map and not survive(options.workers, n_chaos, options.kills, options.seed):
        faults.append("results were lost, wrong or doubled")
    finish(options, {}, faults)


if __name__ == "__main__":
    main()
