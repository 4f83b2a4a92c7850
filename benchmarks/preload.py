"""The time to start workers that need a large module, and to restart one: `python benchmarks/preload.py`.

Eight workers import torch (or the module that `--module` names) and multiply two matrices. Three ways to
start them take turns:

    launchpad                       each worker imports it
    launchpad, preload              lp.launch(…, preload=["torch"])
    multiprocessing, forkserver     set_forkserver_preload(["torch"])

all ready       the time from the launch, or the first start(), until the last worker has answered
started again   the time from the kill (SIGKILL) of one worker until its successor answers
memory          PSS of each worker when all have multiplied. A shared page counts in part in each process
                that shares it
"""

from __future__ import annotations

import importlib
import multiprocessing as mp
import os
import signal
import statistics
import time
from functools import partial
from typing import Any

import launchpad as lp
from benchmarks.harness import holdings
from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.figures import Table, in_turns, summary
from benchmarks.harness.processes import apart
from benchmarks.harness.programs import FOREVER, launch, replicas

KINDS = ("launchpad", "launchpad, preload", "multiprocessing, forkserver")


def compute(module: str) -> int:
    """Import the module, and multiply matrices if it has any (as torch and numpy). Return the pid."""
    loaded = importlib.import_module(module)
    make_ones = getattr(loaded, "ones", None)
    if make_ones is not None:
        product = make_ones((64, 64)) @ make_ones((64, 64))
        assert float(product.sum()) == 64.0**3
    return os.getpid()


class Computes:
    """A server that computes when it is built, and then answers with its pid."""

    def __init__(self, module: str) -> None:
        self._pid = compute(module)

    def pid(self) -> int:
        return self._pid


def with_launchpad(module: str, workers: int, preload: bool) -> dict[str, float]:
    program = replicas("node", workers, lambda: lp.CourierNode(Computes, module), FOREVER)
    options: Any = {"preload": [module]} if preload else {}
    began = time.monotonic()
    with launch(program, **options) as running:
        clients: list[Any] = [running.client("node", i) for i in range(workers)]
        pids = [future.result() for future in [client.futures.pid() for client in clients]]
        ready_s = time.monotonic() - began
        memory = pss(pids)
        began = time.monotonic()
        os.kill(pids[0], signal.SIGKILL)
        with running.client("node", 0) as client:
            prober: Any = client.with_options(idempotent=True)
            while prober.pid() == pids[0]:
                time.sleep(0.001)
        return {"ready_s": ready_s, "again_s": time.monotonic() - began, "pss_mb": memory}


def serve(module: str, pipe: Any) -> None:
    pipe.send(compute(module))
    signal.pause()


def with_multiprocessing(module: str, workers: int) -> dict[str, float]:
    """Measure multiprocessing. Call this in a new process, because its forkserver starts only once."""
    context = mp.get_context("forkserver")
    context.set_forkserver_preload([module])

    def start() -> tuple[Any, Any]:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=serve, args=(module, theirs))
        process.start()
        return process, ours

    began = time.monotonic()
    children = [start() for _ in range(workers)]
    pids = [pipe.recv() for _, pipe in children]
    ready_s = time.monotonic() - began
    memory = pss(pids)
    began = time.monotonic()
    os.kill(pids[0], signal.SIGKILL)
    children[0][0].join()
    children.append(start())
    children[-1][1].recv()
    again_s = time.monotonic() - began
    for process, _ in children:
        process.kill()
        process.join()
    return {"ready_s": ready_s, "again_s": again_s, "pss_mb": memory}


def pss(pids: list[int]) -> float:
    """Return the mean PSS of these processes, in MB."""
    return statistics.mean(map(holdings.proportional, pids)) / 1e6


def measure(kind: str, module: str, workers: int) -> dict[str, float]:
    if kind == KINDS[2]:
        return with_multiprocessing(module, workers)
    return with_launchpad(module, workers, preload=kind == KINDS[1])


def main() -> None:
    """Print a table of the medians."""
    options = Parser(__doc__, module="torch", workers=8, rounds=3).parse_args()
    ways = {kind: partial(apart, measure, kind, options.module, options.workers) for kind in KINDS}
    spreads = {kind: summary(turns) for kind, turns in in_turns(ways, options.rounds).items()}
    heads = {"all ready, s": ".2f", "started again, s": ".3f", "PSS of each, MB": ".1f"}
    table = Table(f"{options.workers} workers, {options.module}", heads, width=30)
    for kind, row in spreads.items():
        table.row(kind, *row.values())
    finish(options, {"preload": spreads})


if __name__ == "__main__":
    main()
