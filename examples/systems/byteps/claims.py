"""Checks of the papers' claims, on the workers' results and on the traffic over the edges."""

from collections.abc import Sequence

import numpy as np
import threadpoolctl

import launchpad as lp
from examples._shared.checks import check
from examples._shared.data import Array
from examples._shared.pictures import Bar
from examples._shared.problem import Problem
from examples.systems.byteps.algorithm import Event
from examples.systems.byteps.placement import PARTITION_BYTES, Partition
from examples.systems.byteps.worker import Trained


def train_alone(problem: Problem, momentum: float) -> Array:
    """Return the parameters of one process that adds up gradients in the workers' order."""
    threadpoolctl.threadpool_limits(1)  # as in the workers
    parameters = problem.first_parameters
    velocity = np.zeros_like(parameters)
    for step in range(problem.steps):
        total = sum(problem.gradient(parameters, step, i) for i in range(problem.workers))
        velocity = momentum * velocity + total / problem.workers
        parameters = parameters - problem.learning_rate * velocity
    return parameters


def check_bytes(edges: lp.edges.Edges, n: int, k: int, n_bytes: int) -> None:
    """Check that each machine's link carries what the paper has computed."""
    least = 2 * n * (n - 1) / (n * n + k * n - 2 * k)
    between = [row for row in edges if row.caller != row.server]
    machines = {name for row in between for name in (row.caller, row.server)}
    sent = dict.fromkeys(machines, 0)
    received = dict.fromkeys(machines, 0)
    for row in between:
        sent[row.caller] += row.bytes_sent
        received[row.server] += row.bytes_sent
        sent[row.server] += row.bytes_received
        received[row.caller] += row.bytes_received
    shares = [n_of_link / n_bytes for n_of_link in (*sent.values(), *received.values())]
    check(
        len(machines) == n + k and all(abs(share / least - 1) <= 0.01 for share in shares),
        f"(n, k) = ({n}, {k}): each machine sends and gets 2n(n-1)/(n²+kn-2k) = {least:.4f}"
        " of the gradients at each step",
        f"{min(shares):.4f} to {max(shares):.4f}, on {len(machines)} machines",
    )


def check_credit(trained: Sequence[Trained]) -> None:
    """Check that layers are cut, and that one full partition is under way at any time, or less."""
    most = 0
    for own in trained:
        under_way = 0
        for kind, partition in partitions_in(own.trace):
            under_way += {"sent": 1, "arrived": -1}.get(kind, 0) * partition.n_bytes
            most = max(most, under_way)
    claim = f"at most {PARTITION_BYTES:,} bytes are under way from a worker"
    check(0 < most <= PARTITION_BYTES, claim, f"{most:,}")


def check_overtaking(trained: Sequence[Trained]) -> None:
    """Check that gradients of the first layer, which are made last, leave before others that wait."""
    n_overtaken = 0
    n_too_early = 0
    for own in trained:
        waiting: list[Partition] = []
        for kind, partition in partitions_in(own.trace):
            if kind == "ready":
                waiting.append(partition)
            elif kind == "sent":
                n_too_early += any(each.layer < partition.layer for each in waiting)
                n_overtaken += waiting.index(partition) if partition.layer == 0 else 0
                waiting.remove(partition)
    check(
        n_overtaken > 0 and n_too_early == 0,
        "no partition leaves while one of an earlier layer waits",
        f"those of the first layer have overtaken others {n_overtaken} times",
    )


def partitions_in(trace: Sequence[Event]) -> list[tuple[str, Partition]]:
    """Return the events of partitions, without those of layers."""
    return [(kind, item) for kind, item in trace if isinstance(item, Partition)]


def check_iteration_time(
    by_priority: Sequence[Trained], in_order: Sequence[Trained], at_once: Sequence[Trained]
) -> None:
    """Compare iterations in logical time: with priority, forward begins while gradients are on their way."""
    times = [
        sum(iteration_time(own.trace) for own in trained) / len(trained)
        for trained in (by_priority, in_order, at_once)
    ]
    check(
        times[0] < min(times[1:]),
        "with priority an iteration takes less logical time, if there is a limit to what is under way",
        f"{times[0]:.3f} instead of {times[1]:.3f}; {times[2]:.3f} without limit",
    )


def iteration_time(trace: Sequence[Event]) -> float:
    """Return how long an iteration takes in logical time, on the average of all steps."""
    n_steps = trace.count(("forward", 0))
    return max(bar.end for bars in replay(trace) for bar in bars) / n_steps


def replay(trace: Sequence[Event]) -> tuple[list[Bar], list[Bar]]:
    """Return when layers and partitions are at work, if a layer takes 1, and 4 MB on the link take 1.

    Partitions follow each other on the link, in the order in which the worker has sent them. No clock is
    read, so the answer is the same on a busy machine.
    """
    now = 0.0
    layers: list[Bar] = []
    link: list[Bar] = [Bar(now, now, "layer 0")]
    ready: dict[Partition, float] = {}
    arrived: dict[Partition, float] = {}
    for kind, item in trace:
        if isinstance(item, int):
            layers.append(Bar(now, now + 1, kind))
            now += 1
        elif kind == "ready":
            ready[item] = now
        elif kind == "sent":
            start = max(link[-1].end, ready[item])
            arrived[item] = start + item.n_bytes / PARTITION_BYTES
            link.append(Bar(start, arrived[item], f"layer {item.layer}"))
        elif kind == "sum":
            now = max(now, arrived[item])
    return layers, link


def check_kill(disturbed: Sequence[Trained], undisturbed: Sequence[Trained]) -> None:
    """Check that a server that was started again got from the workers what it needed."""
    pairs = zip(disturbed, undisturbed, strict=True)
    n_same = sum(np.array_equal(one.parameters, other.parameters) for one, other in pairs)
    attempts = disturbed[0].attempts
    check(
        n_same == len(undisturbed) and max(attempts) == 2,
        "a summation server that is killed changes no bit",
        f"{n_same} of {len(undisturbed)} workers equal the undisturbed ones; attempts of servers: {attempts}",
    )
