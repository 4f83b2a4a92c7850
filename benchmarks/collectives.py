"""all_reduce of arrays of 1 kB to 64 MB, beside gloo's in the same ranks, on one host.

    python benchmarks/collectives.py --ranks 2 4

Ours and gloo's, that of torch.distributed, take turns, round by round; a round counts with the time of its
slowest rank, and of all rounds the median. Without torch there is only ours. What is promised is at the end:
at most 1.3 times gloo's time below 1 MB, at most its time from 4 MB on. On a busy machine single lines say
little: the last lines are medians over the sizes. gloo's times for small arrays have differed by a factor of
four from run to run, so look at ours as well.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import socket
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import launchpad as lp

KIB = 1 << 10
SIZES = [KIB << n for n in (0, 3, 5, 6, 7, 8, 9, 10, 12, 14, 16)]
LINE = "{:>5} {:>10} {:>11} {:>11} {:>7} {:>11}"


def measure(group: lp.Collective, sizes: list[int], rounds: int, port: int) -> list[Any]:
    """Per size the rounds of this rank, in ms: ours, and gloo's if there is torch."""
    gloo = _gloo(group, port)
    found = []
    for size in sizes:
        x = np.ones(size // 4, np.float32)
        ways: dict[str, Callable[[], Any]] = {"ours": partial(group.all_reduce, x, "max", out=x)}
        if gloo is not None:
            ways["gloo"] = gloo(x.copy())
        repeats = max(1, min(30, (4 << 20) // size))
        times: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(rounds + 1):
            for name, reduce in ways.items():
                group.barrier()
                began = time.perf_counter()
                for _ in range(repeats):
                    reduce()
                if number:  # the first one is to warm up
                    times[name].append((time.perf_counter() - began) / repeats * 1e3)
        found.append(times)
    return found


def _gloo(group: lp.Collective, port: int) -> Any:
    if importlib.util.find_spec("torch") is None:
        return None
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    where = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=where, rank=group.rank, world_size=group.size)

    def way(x: Any) -> Callable[[], Any]:
        tensor = torch.from_numpy(x)
        return lambda: dist.all_reduce(tensor, dist.ReduceOp.MAX)

    return way


def run(ranks: int, sizes: list[int], rounds: int) -> list[dict[str, Any]]:
    """A row per size."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = lp.Program("collectives")
    with program.group("rank"):
        for _ in range(ranks):
            program.add_node(lp.CollectiveNode(measure, sizes, rounds, port))
    with lp.launch(program, "local_mp", terminal="output_to_files") as running:
        results = running.results("rank", 600)
    edges = running.edges()
    rows = []
    for index, size in enumerate(sizes):
        row: dict[str, Any] = {"ranks": ranks, "bytes": size}
        for name in results[0][index]:
            slowest = [max(each) for each in zip(*(of[index][name] for of in results), strict=True)]
            row[name] = statistics.median(slowest)
            row[f"{name}_best"] = min(slowest)
        rows.append(row)
    print(f"{edges.total(method='share').calls:,} rows announced in shared memory,", end=" ")
    print(f"{edges.total(method='swap').calls:,} of data that two ranks swap")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--max-bytes", type=int, default=SIZES[-1])
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds")
    parser.add_argument("--json", help="a file for the figures")
    options = parser.parse_args()
    if options.quick:
        options.ranks, options.rounds, options.max_bytes = [2], 2, 2 << 20
    sizes = [size for size in SIZES if size <= options.max_bytes]
    rows = []
    for ranks in options.ranks:
        of_ranks = run(ranks, sizes, options.rounds)
        print(LINE.format("ranks", "bytes", "ours ms", "gloo ms", "ratio", "GB/s, ours"))
        for row in of_ranks:
            gloo = row.get("gloo")
            ratio = f"{row['ours'] / gloo:.2f}" if gloo else "-"
            shown = f"{gloo:.3f}" if gloo else "-"
            gigabytes_s = row["bytes"] / row["ours"] / 1e6
            cells = (ranks, f"{row['bytes']:,}", f"{row['ours']:.3f}", shown, ratio)
            print(LINE.format(*cells, f"{gigabytes_s:.2f}"))
        rows += of_ranks
    for text, limit, of in (
        ("below 1 MB", 1.3, [r for r in rows if r["bytes"] < 1 << 20]),
        ("from 4 MB on", 1.0, [r for r in rows if r["bytes"] >= 4 << 20]),
    ):
        for ranks in options.ranks:
            ratios = [r["ours"] / r["gloo"] for r in of if r["ranks"] == ranks and "gloo" in r]
            if ratios:
                median = statistics.median(ratios)
                is_kept = "kept" if median <= limit else "NOT KEPT"
                print(
                    f"{ranks} ranks, {text}: {median:.2f} times gloo's time (the worst {max(ratios):.2f});"
                    f" promised are {limit}: {is_kept}"
                )
    if options.json:
        Path(options.json).write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
