"""Checks of the papers' claims, on the workers' results and on the traffic over the edges."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import launchpad as lp
from examples._shared.checks import check
from examples.systems.byteps.algorithm import Event
from examples.systems.byteps.iteration_time import iteration_time
from examples.systems.byteps.placement import PARTITION_BYTES, Partition
from examples.systems.byteps.worker import CREDIT, Trained


def check_sums(
    setting: str, trained: Sequence[Trained], alone: str, by_ranks: Sequence[str]
) -> None:
    """Check that sums are those of one process, and of all-reduce, which adds up in the same order."""
    digests = sorted({alone, *by_ranks, *(each.sha256 for each in trained)})
    check(
        len(digests) == 1,
        f"{setting}: workers learn the same bits as one process, and as ranks that all-reduce",
        f"sha256 {', '.join(digest[:12] for digest in digests)}",
    )


def check_bytes(edges: lp.edges.Edges, n: int, k: int, n_bytes: int) -> None:
    """Check that each machine's link carries what the paper has computed."""
    least = 2 * n * (n - 1) / (n * n + k * n - 2 * k)
    links = over_links(edges)
    shares = [n_of_link / n_bytes for link in links.values() for n_of_link in link]
    check(
        len(links) == n + k and all(abs(share / least - 1) <= 0.01 for share in shares),
        f"(n, k) = ({n}, {k}): each machine sends and gets 2n(n-1)/(n²+kn-2k) = {least:.4f}"
        " of the gradients at each step",
        f"{min(shares):.4f} to {max(shares):.4f}, on {len(links)} machines",
    )


def over_links(edges: lp.edges.Edges) -> dict[str, tuple[int, int]]:
    """Return how many bytes each machine has sent to others and received from them."""
    between = [row for row in edges if row.caller != row.server]
    machines = {name for row in between for name in (row.caller, row.server)}
    n_sent = dict.fromkeys(sorted(machines), 0)
    n_received = dict(n_sent)
    for row in between:
        n_sent[row.caller] += row.bytes_sent
        n_received[row.server] += row.bytes_sent
        n_sent[row.server] += row.bytes_received
        n_received[row.caller] += row.bytes_received
    return {machine: (n_sent[machine], n_received[machine]) for machine in n_sent}


def check_partitions(trained: Sequence[Trained], largest_layer: int) -> None:
    """Check that large layers are cut into smaller partitions."""
    sizes = [each.n_bytes for of_worker in trained for _, each in of_worker.trace]
    check(
        max(sizes) <= PARTITION_BYTES < largest_layer,
        f"no partition has more than {PARTITION_BYTES:,} bytes",
        f"{max(sizes):,} at most, of a layer of {largest_layer:,}",
    )


def check_credit(trained: Sequence[Trained]) -> None:
    """Check that at most the credit is under way at any time."""
    most = max(most_under_way(of_worker.trace) for of_worker in trained)
    check(most <= CREDIT, f"at most {CREDIT:,} bytes are under way from a worker", f"{most:,}")


def most_under_way(trace: Sequence[Event]) -> int:
    """Return the most bytes that were sent and had not arrived yet."""
    under_way = 0
    most = 0
    for event, partition in trace:
        under_way += {"ready": 0, "sent": 1, "arrived": -1}[event] * partition.n_bytes
        most = max(most, under_way)
    return most


def check_overtaking(trained: Sequence[Trained], without: Sequence[Trained]) -> None:
    """Check that gradients of the first layer, which are made last, leave before others that wait."""
    by_priority = [each for of_worker in trained for each in departures(of_worker.trace)]
    in_order = [each for of_worker in without for each in departures(of_worker.trace)]
    n_overtaken = sum(each.n_overtaken for each in by_priority if each.partition.layer == 0)
    check(
        n_overtaken > 0 and not any(each.is_too_early for each in by_priority),
        "no partition leaves while one of an earlier layer waits",
        f"those of the first layer have overtaken others {n_overtaken} times",
    )
    n_overtaken = sum(each.n_overtaken for each in in_order)
    check(
        n_overtaken == 0,
        "without priority, partitions leave in the order in which they are made",
        f"they have overtaken others {n_overtaken} times",
    )


class Departure(NamedTuple):
    """The departure of a partition from a queue.

    Attributes:
        n_overtaken: How many other partitions were ready before it, and still waited.
        is_too_early: True if a partition of an earlier layer still waited.
    """

    partition: Partition
    n_overtaken: int
    is_too_early: bool


def departures(trace: Sequence[Event]) -> Iterator[Departure]:
    """Yield the departures from a queue, in order."""
    waiting: list[Partition] = []
    for event, partition in trace:
        if event == "ready":
            waiting.append(partition)
        elif event == "sent":
            is_too_early = any(candidate.layer < partition.layer for candidate in waiting)
            yield Departure(partition, waiting.index(partition), is_too_early)
            waiting.remove(partition)


def check_iteration_time(layers: Sequence[Sequence[Partition]]) -> None:
    """Compare iterations in logical time: with priority, forward begins while gradients are on their way."""
    everything = sum(each.n_bytes for layer in layers for each in layer)
    in_order, by_priority, at_once = (
        iteration_time(layers, credit, is_by_priority)
        for credit, is_by_priority in ((CREDIT, False), (CREDIT, True), (everything, True))
    )
    check(
        by_priority < in_order == at_once,
        "with priority an iteration takes less logical time, if there is a limit to what is under way",
        f"{float(by_priority):.3f} instead of {float(in_order):.3f}; {float(at_once):.3f} without limit",
    )


def check_kill(disturbed: Sequence[Trained], undisturbed: Sequence[Trained]) -> None:
    """Check that a server that was started again got from the workers what it needed."""
    n_same = sum(a.sha256 == b.sha256 for a, b in zip(disturbed, undisturbed, strict=True))
    attempts = disturbed[0].attempts
    check(
        n_same == len(undisturbed) and max(attempts) == 2,
        "a summation server that is killed changes no bit",
        f"{n_same} of {len(undisturbed)} workers equal the undisturbed ones; attempts of servers: {attempts}",
    )
