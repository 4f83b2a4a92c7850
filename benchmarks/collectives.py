"""The time of all_reduce for arrays of 1 kB to 64 MB, beside gloo in the same ranks, on one host.

    python benchmarks/collectives.py --ranks 2 4

Our all_reduce and that of gloo (torch.distributed) take turns in each round. The time of a round is that of
its slowest rank, and a figure is the median over the rounds. Without torch, the script measures ours alone.
The last lines compare with what we promise: at most 1.3 times gloo's time below 1 MB, and at most gloo's time
from 4 MB on. They are medians over the sizes, because single lines say little on a busy machine. gloo's times
for small arrays have differed by a factor of four from run to run, so look at our own times as well.
"""

from __future__ import annotations

import importlib.util
import socket
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import launchpad as lp
from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.figures import Table, in_turns, timed
from benchmarks.harness.programs import launch, replicas

KIB = 1 << 10
SIZES = [KIB << n for n in (0, 3, 5, 6, 7, 8, 9, 10, 12, 14, 16)]
LIMITS = {"below 1 MB": (1.3, range(1 << 20)), "from 4 MB on": (1.0, range(4 << 20, 1 << 40))}


def measure(group: lp.Collective, sizes: list[int], rounds: int, port: int) -> list[Any]:
    """Return this rank's times in ms, a dict for each size: ours, and gloo's if torch is installed."""
    gloo = _gloo(group, port)
    times = []
    for size in sizes:
        x = np.ones(size // 4, np.float32)
        ways: dict[str, Callable[[], Any]] = {"ours": partial(group.all_reduce, x, "max", out=x)}
        if gloo is not None:
            ways["gloo"] = gloo(x.copy())
        repeats = max(1, min(30, (4 << 20) // size))

        def one_turn(reduce: Callable[[], Any], repeats: int = repeats) -> float:
            group.barrier()
            took_s = timed(lambda: [reduce() for _ in range(repeats)])()
            return took_s / repeats * 1e3

        times.append(
            in_turns(
                {name: partial(one_turn, reduce) for name, reduce in ways.items()},
                rounds,
                warm_up=1,
            )
        )
    return times


def _gloo(group: lp.Collective, port: int) -> Any:
    if importlib.util.find_spec("torch") is None:
        return None
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=group.rank, world_size=group.size)

    def way(x: Any) -> Callable[[], Any]:
        tensor = torch.from_numpy(x)
        return lambda: dist.all_reduce(tensor, dist.ReduceOp.MAX)

    return way


def run(ranks: int, sizes: list[int], rounds: int) -> list[dict[str, Any]]:
    """Measure a group of `ranks` ranks; return a row of figures for each size."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = replicas("rank", ranks, lambda: lp.CollectiveNode(measure, sizes, rounds, port))
    with launch(program) as running:
        results = running.results("rank", 600)
    edges = running.edges()
    rows = []
    for index, size in enumerate(sizes):
        row: dict[str, Any] = {"ranks": ranks, "bytes": size}
        for name in results[0][index]:
            rank_times = [result[index][name] for result in results]
            slowest = [max(times) for times in zip(*rank_times, strict=True)]
            row[name] = statistics.median(slowest)
            row[f"{name}_best"] = min(slowest)
        rows.append(row)
    print(f"{edges.total(method='share').calls:,} rows announced in shared memory,", end=" ")
    print(f"{edges.total(method='swap').calls:,} of data that two ranks swap")
    return rows


def main() -> None:
    quick = {"ranks": [2], "rounds": 2, "max_bytes": 2 << 20}
    parser = Parser(__doc__, quick, ranks=[2, 4], rounds=10, max_bytes=SIZES[-1])
    options = parser.parse_args()
    sizes = [size for size in SIZES if size <= options.max_bytes]
    rows = []
    for ranks in options.ranks:
        rows_of_ranks = run(ranks, sizes, options.rounds)
        heads = {"ours ms": ".3f", "gloo ms": ".3f", "ratio": ".2f", "GB/s, ours": ".2f"}
        table = Table(f"{ranks} ranks, bytes", heads)
        for row in rows_of_ranks:
            gloo = row.get("gloo")
            ratio = row["ours"] / gloo if gloo else None
            table.row(
                f"{row['bytes']:,}", row["ours"], gloo, ratio, row["bytes"] / row["ours"] / 1e6
            )
        rows += rows_of_ranks
        for text, (limit, sizes_in_limit) in LIMITS.items():
            fitting = [r for r in rows_of_ranks if r["bytes"] in sizes_in_limit and "gloo" in r]
            ratios = [r["ours"] / r["gloo"] for r in fitting]
            if ratios:
                median = statistics.median(ratios)
                verdict = "kept" if median <= limit else "NOT KEPT"
                print(
                    f"{ranks} ranks, {text}: {median:.2f} times gloo's time (the worst {max(ratios):.2f});"
                    f" promised are {limit}: {verdict}"
                )
    finish(options, {"collectives": rows})


if __name__ == "__main__":
    main()
