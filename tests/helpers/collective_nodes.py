"""Nodes for tests of collectives: what ranks do, and what happens to them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import launchpad as lp


def program_of(
    n: int, fn: Any, *args: Any, restart: lp.RestartPolicy | None = None, **options: Any
) -> lp.Program:
    """Return a program of n ranks, each of which runs the function or class."""
    program = lp.Program("ranks")
    with program.group("rank", restart=restart):
        for _ in range(n):
            program.add_node(lp.CollectiveNode(fn, *args, **options))
    return program


def in_ranks(n: int, fn: Callable[..., Any], *args: Any, launch_type: str = "test_mt") -> list[Any]:
    """Run the function in n ranks, and return their results."""
    program = program_of(n, fn, *args, timeout_s=60)
    results: list[Any] = lp.run(program, launch_type, timeout_s=90)["rank"]
    return results


class Pair(NamedTuple):
    first: Any
    second: Any


def values(rank: int, dtype: str, size: int) -> Any:
    """Return values that differ by rank, and are so small that sums and products of 8 fit into a byte."""
    numbers = np.random.default_rng(1000 * rank + size).integers(0, 3, size)
    if np.dtype(dtype).kind in "fc":
        return (numbers + 0.25 * rank).astype(dtype)
    return numbers.astype(dtype)


def use_all(group: lp.Collective, backend: str) -> dict[str, Any]:
    """Call every operation once, and return the results by name."""
    rank = group.rank
    size = group.size
    x = np.arange(6, dtype=np.float32).reshape(2, 3) + rank
    large = np.full(1 << 19, 1.0 + rank)
    tree = {"w": x, "b": [rank, Pair(float(rank), np.array([rank], np.int32))]}
    results: dict[str, Any] = {
        "sum": group.all_reduce(x),
        "mean": group.all_reduce(tree["w"], "mean"),
        "large": float(group.all_reduce(large)[-1]),
        "tree": group.all_reduce({"b": tree["b"]}),
        "part": group.reduce_scatter(np.arange(size * 2.0)),
        "gathered": group.all_gather(np.array([rank])),
        "spread": group.broadcast(np.full(3, rank), root=size - 1),
        "swapped": group.all_to_all([np.array([rank, receiver]) for receiver in range(size)]),
        "object": group.broadcast_object({"of": rank}, root=1),
        "objects": group.all_gather_object(("rank", rank)),
        "at_root": group.gather_object(rank),
    }
    group.barrier("over")
    half = group.split(rank % 2)
    assert half is not None
    results["half"] = half.rank, half.size, half.all_reduce(rank)
    results["me"] = rank, size, group.generation, group.local_rank, group.label
    return results


def die(how: str) -> None:
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise ValueError("told to die")


def leave_between_chunks(group: lp.Collective) -> None:
    """Rank 1's part of an array overflows, which only there is an error; the others wait for it."""
    over: Any = "raise" if group.rank == 1 else "ignore"
    with np.errstate(over=over), contextlib.suppress(FloatingPointError):
        group.all_reduce(np.full(1 << 20, 3e38, "f4"))
        assert group.rank != 1


def lose_one(group: lp.Collective, how: str, when: str = "awaited") -> Any:
    """Rank 1 of the first generation dies. The others wait for it then, or call something later."""
    busy = when == "busy"
    group.barrier("all are here")
    if group.generation == 1 and group.rank == 1:
        if when == "between chunks":
            leave_between_chunks(group)
        print("dies at", time.time(), flush=True)
        die(how)
    try:
        if group.generation == 1 and when == "between chunks":
            leave_between_chunks(group)
        while group.generation == 1:
            if busy and group.rank == 0:
                time.sleep(0.2)
            group.all_reduce(np.ones(1 << (10 if busy else 18)))
    except lp.PeerFailed as failed:
        print("knows at", time.time(), failed.worker, failed.rank, flush=True)
        raise
    return group.generation, group.size, int(group.all_reduce(1)), lp.current().attempt


def count_to_ten(group: lp.Collective, how: str) -> tuple[int, int, int, int]:
    """Rank 1 of the first generation dies at 5. The next generation goes on from what rank 0 has saved."""
    me = lp.current()
    first = group.broadcast_object(me.load(default=0) if group.rank == 0 else None)
    for step in range(first, 10):
        group.barrier("step")
        if (step, group.rank, group.generation) == (5, 1, 1):
            die(how)
        if group.rank == 0:
            me.save(step + 1)
    return first, group.generation, me.attempt, int(group.all_reduce(1))


def leave_early(group: lp.Collective) -> None:
    if group.rank != 1:
        group.barrier("never passed")


def do_different_things(group: lp.Collective, how: str) -> None:
    if how == "size":
        group.all_reduce(np.ones(2 + group.rank))
    elif how == "dtype":
        group.all_reduce(np.ones(1 << 20, "f4" if group.rank else "f8"))
    elif how == "silence" and group.rank:  # rank 0 waits for a message, and sends none
        group.all_reduce(np.ones(3))
    elif how == "silence" or group.rank:
        group.barrier("here")
    else:
        group.broadcast(np.ones(3))


def come_late(group: lp.Collective) -> None:
    if group.rank == 2:
        lp.wait_for_stop()
    else:
        group.barrier("late", timeout_s=0.5)


class Stage:
    """A class with a collective: it is served as well."""

    def __init__(self, group: lp.Collective, offset: int) -> None:
        self.group = group
        self.offset = offset

    def place(self) -> tuple[int, int]:
        return self.group.rank, self.offset

    def run(self) -> int:
        total = self.group.all_reduce(self.offset)
        self.group.barrier("asked")
        return total


class LosesOne:
    """Rank 1 dies once, in its `run` or, later, in the second generation, while the others are built."""

    def __init__(self, group: lp.Collective) -> None:
        self.group = group
        me = lp.current()
        if group.generation == 2 and me.replica_index == 2 and me.attempt == 1:
            die("kill")
        self.at_build = group.all_reduce(1)

    def run(self) -> tuple[int, int]:
        me = lp.current()
        if me.attempt == 1 and me.replica_index == 1:
            die("kill")
        while self.group.size < me.num_replicas:
            self.group.barrier("others are to come back")
        if self.group.generation == 1:
            self.group.barrier("never passed")
        return self.at_build, me.attempt


def count_steps(group: lp.Collective, limit: int, dies_at: int) -> tuple[int, list[int], int]:
    """Counts steps; the state is broadcast from whoever has done most when a generation begins.

    Returns:
        Steps, the sizes of the generations that this worker has seen, and the sum over all steps.
    """
    mine = counted.setdefault(lp.current().name, {"step": 0, "total": 0, "sizes": []})
    steps = group.all_gather_object(mine["step"])
    first = steps.index(max(steps))
    mine["step"], mine["total"] = group.broadcast_object((mine["step"], mine["total"]), first)
    mine["sizes"].append(group.size)
    while mine["step"] < limit:
        me = lp.current()
        if mine["step"] == dies_at and me.replica_index == 1 and me.attempt == 1:
            die("kill" if me.launch_type == "test_mp" else "raise")
        if mine["step"] == limit - 1 and group.size < me.num_replicas:
            group.barrier("others are to come back", timeout_s=60)
            time.sleep(0.02)
            continue
        increment = int(group.all_reduce(1, "max"))
        mine["step"], mine["total"] = mine["step"] + increment, mine["total"] + mine["step"]
    return mine["step"], mine["sizes"], mine["total"]


counted: dict[str, dict[str, Any]] = {}
"""Outlives generations, as it is the process's; by worker, as those of one process are threads of it."""
