from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import launchpad as lp
from examples._shared.problem import Problem
from examples.systems.byteps import claims
from examples.systems.byteps.algorithm import Event, SendQueue
from examples.systems.byteps.placement import PARTITION_BYTES, Partition, placement
from examples.systems.byteps.program import make_program
from examples.systems.byteps.server import SummationServer
from examples.systems.byteps.worker import Trained

FULL = PARTITION_BYTES // 8
FIRST, SECOND, THIRD = (Partition(1, 0, i * FULL, (i + 1) * FULL) for i in range(3))
URGENT = Partition(0, 0, 0, FULL)
ROW = lp.edges.EdgeStats(
    "worker-0", "spare-0", "push", 1, 1, 0, 0, 0, 100, 10, 0, 0, (), is_exact=True
)


def shares_in_units(servers: int, units: int) -> Iterator[list[int]]:
    """All ways to give so many units to servers."""
    for bars in itertools.combinations(range(units + servers - 1), servers - 1):
        ends = [-1, *bars, units + servers - 1]
        yield [end - begin - 1 for begin, end in itertools.pairwise(ends)]


def traffic(n: int, shares: list[float]) -> list[float]:
    """How many bytes each machine sends per byte of gradients. It receives as many.

    A worker sends everything except what the server beside it adds up. That server sends its sums to the
    n - 1 other workers.
    """
    beside, spare = shares[:n], shares[n:]
    return [1 - share + (n - 1) * share for share in beside] + [n * share for share in spare]


@pytest.mark.parametrize(("n", "k"), [(2, 1), (3, 0), (3, 1), (3, 2), (3, 3), (2, 3)])
def test_no_other_placement_keeps_the_busiest_machine_less_busy(n, k) -> None:
    units = n * n + k * n - 2 * k if k <= n else k  # in which the best one is whole numbers

    least = min(
        max(traffic(n, [share / units for share in shares]))
        for shares in shares_in_units(n + k, units)
    )

    assert max(traffic(n, placement(n, k))) == pytest.approx(least, rel=1e-12)


def test_a_partition_that_is_larger_than_the_credit_goes_alone() -> None:
    sent: list[Partition] = []

    SendQueue(sent.append, credit=10).put([FIRST, SECOND])

    assert sent == [FIRST]


class FakeWorker:
    """Has kept some gradients for any server."""

    def __init__(self, *kept: tuple[int, float]) -> None:
        self._kept = {(step, URGENT): np.array([value]) for step, value in kept}

    def kept(self, server: int):
        return self._kept


@pytest.fixture
def make_server() -> Iterator[Callable[..., SummationServer]]:
    with lp.testing.worker("spare"):
        yield lambda n: SummationServer(0, [FakeWorker()] * n)


def test_a_server_gives_a_sum_when_all_have_pushed_and_counts_each_once(make_server) -> None:
    server = make_server(2)

    with ThreadPoolExecutor(1) as pool:
        server.push(0, 0, URGENT, np.array([1.0]))
        server.push(0, 0, URGENT, np.array([1.0]))  # made again
        early = pool.submit(server.pull, 0, 0, URGENT)
        server.push(1, 0, URGENT, np.array([2.0]))
        assert early.result(timeout=5) == [3.0]
    server.push(1, 0, URGENT, np.array([2.0]))  # made again, too late
    server.push(0, 1, URGENT, np.array([5.0]))
    server.push(1, 1, URGENT, np.array([6.0]))

    assert server.pull(0, 1, URGENT) == [11.0]


def test_a_server_that_was_killed_has_the_sums_of_gradients_that_workers_kept() -> None:
    ahead, behind = FakeWorker((6, 1.0), (7, 2.0), (8, 3.0)), FakeWorker((6, 10.0), (7, 20.0))

    with lp.testing.worker("spare", attempt=2):
        server = SummationServer(0, [ahead, behind])

        assert server.pull(0, 7, URGENT) == [22.0]  # which the one behind has not got yet
        server.push(1, 8, URGENT, np.array([30.0]))
        assert server.pull(0, 8, URGENT) == [33.0]


BEGIN = [("ready", FIRST), ("ready", SECOND), ("sent", FIRST), ("ready", URGENT)]
BY_PRIORITY = [*BEGIN, ("sent", URGENT), ("sent", SECOND)]
IN_ORDER = [*BEGIN, ("sent", SECOND), ("sent", URGENT)]
ALONE = [("ready", URGENT), ("sent", URGENT)]
TRAINED = Trained(np.ones(2), [], BY_PRIORITY, attempts=[1])
OTHER = replace(TRAINED, parameters=np.zeros(2), attempts=[2])


def trace(events: list[Event]) -> Trained:
    return replace(TRAINED, trace=events)


def step(order: list[Partition], is_patient: bool = False) -> list[Event]:
    """Backward through two layers, of which the second has two partitions, and forward once more."""
    ready = [("backward", 1), ("ready", FIRST), ("ready", SECOND), ("backward", 0)]
    sent: list[Event] = [("sent", partition) for partition in order]
    sums: list[Event] = [("sum", FIRST), ("sum", SECOND)]
    own = [*sums, ("forward", 0)] if is_patient else [("forward", 0), *sums]
    return [*ready, ("ready", URGENT), *sent, ("sum", URGENT), *own, ("forward", 1)]


OVERTAKING = [FIRST, URGENT, SECOND]
LATE = [FIRST, SECOND, URGENT]


@pytest.mark.parametrize(
    ("events", "time"),
    [
        # Backward until 2; the link from 1 to 4. Forward begins at 3, or at 4.
        (step(OVERTAKING), 5),
        (step(LATE), 6),
        (step(OVERTAKING, is_patient=True), 6),
    ],
)
def test_an_iteration_takes_less_logical_time_if_forward_waits_for_the_first_layer_alone(
    events, time
) -> None:
    assert claims.iteration_time(events) == time


@pytest.mark.parametrize(
    ("claim", "arguments", "wrong"),
    [
        (claims.check_bytes, [lp.edges.Edges((ROW,)), 2, 0, 100], "0.1000 to 1.0000, on 2"),
        (claims.check_credit, [[TRAINED]], "12,288,000"),
        (claims.check_overtaking, [[trace(IN_ORDER)]], "while one of an earlier layer waits"),
        (claims.check_overtaking, [[trace(ALONE)]], "overtaken others 0 times"),
        (
            claims.check_iteration_time,
            [[trace(step(OVERTAKING, is_patient=True))], *[[trace(step(LATE))]] * 2],
            "6.000 instead of 6.000",
        ),
        (claims.check_kill, [[TRAINED], [TRAINED]], "attempts of servers: \\[1\\]"),
        (claims.check_kill, [[OTHER], [TRAINED]], "0 of 1 workers"),
    ],
)
def test_a_claim_that_does_not_hold_is_refused(claim, arguments, wrong) -> None:
    with pytest.raises(ArithmeticError, match=wrong):
        claim(*arguments)


def test_a_server_cannot_be_killed_after_the_last_step() -> None:
    with pytest.raises(ValueError, match="no server can be killed after step 3 of 4, the last"):
        make_program(Problem(steps=4), 1, kill_at=3)
