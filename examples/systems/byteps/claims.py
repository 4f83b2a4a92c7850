"""What the papers claim, checked on what the workers have returned and on what has gone over the edges."""

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
    """Sums are those of one process, and of all-reduce, which adds up in the same order."""
    digests = sorted({alone, *by_ranks, *(each.sha256 for each in trained)})
    check(
        len(digests) == 1,
        f"{setting}: workers learn the same bits as one process, and as ranks that all-reduce",
        f"sha256 {', '.join(digest[:12] for digest in digests)}",
    )


def check_bytes(edges: lp.edges.Edges, n: int, k: int, n_bytes: int) -> None:
    """What goes over each machine's link is what the paper has computed."""
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
    """Return what each machine has sent and got, without what stays on it."""
    between = [row for row in edges if row.caller != row.server]
    machines = {name for row in between for name in (row.caller, row.server)}
    sent = dict.fromkeys(sorted(machines), 0)
    got = dict(sent)
    for row in between:
        sent[row.caller] += row.bytes_sent
        got[row.server] += row.bytes_sent
        sent[row.server] += row.bytes_received
        got[row.caller] += row.bytes_received
    return {machine: (sent[machine], got[machine]) for machine in sent}


def check_partitions(trained: Sequence[Trained], largest_layer: int) -> None:
    """Layers are larger than what goes in one message."""
    sizes = [each.n_bytes for of_worker in trained for _, each in of_worker.trace]
    check(
        max(sizes) <= PARTITION_BYTES < largest_layer,
        f"no partition has more than {PARTITION_BYTES:,} bytes",
        f"{max(sizes):,} at most, of a layer of {largest_layer:,}",
    )


def check_credit(trained: Sequence[Trained]) -> None:
    """More than the credit is never under way."""
    most = max(most_under_way(of_worker.trace) for of_worker in trained)
    check(most <= CREDIT, f"at most {CREDIT:,} bytes are under way from a worker", f"{most:,}")


def most_under_way(trace: Sequence[Event]) -> int:
    """Return the most bytes that were sent, and had not arrived."""
    under_way = most = 0
    for what, partition in trace:
        under_way += {"ready": 0, "sent": 1, "arrived": -1}[what] * partition.n_bytes
        most = max(most, under_way)
    return most


def check_overtaking(trained: Sequence[Trained], without: Sequence[Trained]) -> None:
    """Gradients of the first layer, which are made last, leave before others that wait."""
    by_priority = [each for of_worker in trained for each in departures(of_worker.trace)]
    in_order = [each for of_worker in without for each in departures(of_worker.trace)]
    n_overtaken = sum(each.n_overtaken for each in by_priority if each.partition.layer == 0)
    check(
        n_overtaken > 0 and not any(each.is_too_early for each in by_priority),
        "no partition leaves while one of an earlier layer waits",
        f"those of the first layer have overtaken others {n_overtaken} times",
    )
    n_overtaken = sum(each.n_overtaken for each in in_order)
    check(n_overtaken == 0, "without priority they leave as they are made", f"{n_overtaken} times")


class Departure(NamedTuple):
    """That a partition was sent.

    Attributes:
        n_overtaken: How many others waited that were ready before it.
        is_too_early: Whether one of an earlier layer waited.
    """

    partition: Partition
    n_overtaken: int
    is_too_early: bool


def departures(trace: Sequence[Event]) -> Iterator[Departure]:
    """Return what has left a queue, in order."""
    waiting: list[Partition] = []
    for what, partition in trace:
        if what == "ready":
            waiting.append(partition)
        elif what == "sent":
            is_too_early = any(other.layer < partition.layer for other in waiting)
            yield Departure(partition, waiting.index(partition), is_too_early)
            waiting.remove(partition)


def check_iteration_time(layers: Sequence[Sequence[Partition]]) -> None:
    """The forward of the first layer begins while others' gradients are on their way: in logical time."""
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
    """A server that is started again has from the workers what it needs."""
    n_same = sum(a.sha256 == b.sha256 for a, b in zip(disturbed, undisturbed, strict=True))
    attempts = disturbed[0].attempts
    check(
        n_same == len(undisturbed) and max(attempts) == 2,
        "a summation server that is killed changes no bit",
        f"{n_same} of {len(undisturbed)} workers equal the undisturbed ones; attempts of servers: {attempts}",
    )
