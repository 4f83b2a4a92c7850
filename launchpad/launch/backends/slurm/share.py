"""The largest share of a program that one of several alike nodes gets. Pure.

A job asks for the same on each of its nodes. So the workers are placed evenly, and each node has what the
fullest one needs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from launchpad.launch.backends.remote import placement
from launchpad.launch.plan import WorkerPlan
from launchpad.resources import STRICT_SPREAD


@dataclass(frozen=True)
class NodeShare:
    """The CPUs, memory and GPUs that a node must have.

    Attributes:
        memory_bytes: The sum of what workers ask for; 0 if none of them asks for memory.
        gpus: Accelerator → the number of GPUs; the accelerator is empty for any GPU.
    """

    cpus: int
    memory_bytes: int = 0
    gpus: dict[str, int] = field(default_factory=dict)


def largest(workers: Sequence[WorkerPlan], n_nodes: int) -> NodeShare:
    """Return the largest share that one of `n_nodes` alike nodes gets.

    A worker that doesn't say how many CPUs it needs counts as one that needs 1.

    Raises:
        ValueError: a group wants each of its workers on a node of its own, and there are fewer nodes.
    """
    nodes: list[list[WorkerPlan]] = [[] for _ in range(n_nodes)]
    units = sorted(placement.indivisible(workers), key=placement.difficulty, reverse=True)
    for unit in units:
        group = unit[0].group
        allowed = nodes
        if unit[0].resources.placement == STRICT_SPREAD:
            allowed = [node for node in nodes if all(worker.group != group for worker in node)]
        if not allowed:
            raise ValueError(
                f"{group} wants a node for each of its workers (strict_spread), and there are {n_nodes}:"
                " give more nodes=…"
            )
        min(allowed, key=_load).extend(unit)
    shares = [_share(node) for node in nodes]
    kinds = {kind for share in shares for kind in share.gpus}
    return NodeShare(
        max(share.cpus for share in shares),
        max(share.memory_bytes for share in shares),
        {kind: max(share.gpus.get(kind, 0) for share in shares) for kind in sorted(kinds)},
    )


def _load(node: Sequence[WorkerPlan]) -> tuple[float, ...]:
    share = _share(node)
    return sum(share.gpus.values()), share.memory_bytes, _cpus(node), len(node)


def _share(node: Sequence[WorkerPlan]) -> NodeShare:
    memory = sum(worker.resources.memory_bytes or 0 for worker in node)
    kinds = {worker.resources.accelerator or "" for worker in node if worker.resources.gpus}
    gpus = {
        kind: _n_gpus(w.resources.gpus for w in node if (w.resources.accelerator or "") == kind)
        for kind in kinds
    }
    return NodeShare(max(1, math.ceil(_cpus(node) - 1e-6)), memory, gpus)


def _cpus(node: Sequence[WorkerPlan]) -> float:
    return sum(1 if w.resources.cpus is None else w.resources.cpus for w in node)


def _n_gpus(asked: Iterable[float]) -> int:
    """Return how many GPUs suffice. Shares of one GPU share it with others of the same size."""
    number = 0
    for gpus, n_workers in Counter(asked).items():
        if gpus >= 1:
            number += int(gpus) * n_workers
        elif gpus > 0:
            number += math.ceil(n_workers / math.floor(1 / gpus + 1e-6))
    return number
