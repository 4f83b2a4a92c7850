"""Starts workers that need a large module, and one of them again: `python benchmarks/preload.py`.

Eight workers import torch (`--module` names another) and multiply two matrices. Side by side, in turns:

    launchpad                       each worker imports it
    launchpad, preload              lp.launch(…, preload=["torch"])
    multiprocessing, forkserver     set_forkserver_preload(["torch"])

all ready       from the launch, or the first start(), until the last worker has answered
started again   from the kill (SIGKILL) of one until its successor answers
memory          of each worker: PSS, in which what is shared counts once, when all have multiplied
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
    """Import it, and let torch and numpy compute. Return its process."""
    loaded = importlib.import_module(module)
    make_ones = getattr(loaded, "ones", None)
    if make_ones is not None:
        product = make_ones((64, 64)) @ make_ones((64, 64))
        assert float(product.sum()) == 64.0**3
    return os.getpid()


class Computes:
    """Computes when it is built, and says so when it is asked."""

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
    """In a process of its own: this one's forkserver starts once."""
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
    """Return the mean of these processes, in MB."""
    return statistics.mean(map(holdings.proportional, pids)) / 1e6


def one(kind: str, module: str, workers: int) -> dict[str, float]:
    if kind == KINDS[2]:
        return with_multiprocessing(module, workers)
    return with_launchpad(module, workers, preload=kind == KINDS[1])


def main() -> None:
    """Print the medians."""
    options = Parser(__doc__, module="torch", workers=8, rounds=3).parse_args()
    ways = {kind: partial(apart, one, kind, options.module, options.workers) for kind in KINDS}
    spreads = {kind: summary(turns) for kind, turns in in_turns(ways, options.rounds).items()}
    heads = {"all ready, s": ".2f", "started again, s": ".3f", "PSS of each, MB": ".1f"}
    table = Table(f"{options.workers} workers, {options.module}", heads, width=30)
    for kind, row in spreads.items():
        table.row(kind, *row.values())
    finish(options, {"preload": spreads})


if __name__ == "__main__":
    main()
