from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import launchpad as lp
from examples._shared.digits import Array, Digits
from examples.tf_on_spark import claims
from examples.tf_on_spark.algorithm import DataFeed, Row
from examples.tf_on_spark.feeder import Fed
from examples.tf_on_spark.job import Faults, Job
from examples.tf_on_spark.main_fun import Args, gradient, infer
from examples.tf_on_spark.oracle import train_alone
from examples.tf_on_spark.parameter_server import Ledger, ParameterServer
from examples.tf_on_spark.program import Ran
from examples.tf_on_spark.reservation import NotAllRegistered, Reservations
from examples.tf_on_spark.worker import Worked
from tests.waiting import until

LAUNCH_TYPES = ["local_mt", "local_mp", "ray", "kubernetes", "spark"]

CLAIMS = """
each row is in the model once per epoch, though all workers and a feeder are killed
feeders wait while 64 rows do, not counting those that come back from killed workers
rows pushed, in the order in which they came: they train what one process learns from them, bit for bit
rows pushed: of 359 held-out digits 0.9 are read at least
the same main_fun reads by itself, in order, in batches of 24
rows read by workers themselves: they train what one process learns from them, bit for bit
rows read: of 359 held-out digits 0.9 are read at least
workers that have had enough end their feeders, whatever these still have
each row has one result, and results come in the order of the partition's rows
those who wait in vain are told who is absent
""".strip().splitlines()

ARGS = Args((64, 10), np.zeros(650), batch_size=2)
PARTITION = Digits(np.random.default_rng(0).random((5, 64)), np.arange(5))
JOB = Job(ARGS, [PARTITION, PARTITION], feeders=2)


class Rows:
    """A source that gives certain rows."""

    def __init__(self, positions: Sequence[int]) -> None:
        self._left = [Row((0, 0, i), PARTITION.images[i], i) for i in positions]
        self.answers: list[tuple[int, Any]] = []

    def take(self, n: int) -> list[Row]:
        taken, self._left = self._left[:n], self._left[n:]
        return taken

    def cancel(self) -> None:
        self._left = []

    def answer(self, rows: Sequence[Row], results: Sequence[Any]) -> None:
        self.answers += zip([row.id[2] for row in rows], results, strict=True)


@pytest.mark.slow
@pytest.mark.parametrize("launch_type", LAUNCH_TYPES)
def test_tf_on_spark_gives_each_row_once_while_workers_and_a_feeder_are_killed(
    run_system, launch_type
) -> None:
    printed = run_system("tf_on_spark", launch_type)

    for claim in CLAIMS:
        assert f"ok    {claim}: " in printed


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
def test_tasks_of_spark_push_their_partitions_into_the_queues_of_workers(run_system) -> None:
    pytest.importorskip("pyspark")

    printed = run_system("tf_on_spark", "local_mp", "--spark")

    assert "ok    each row is in the model once per epoch: 1438 of 1438 rows" in printed


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
def test_torch_distributor_of_spark_learns_what_the_cluster_learns(run_system) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("pyspark")

    printed = run_system("tf_on_spark", "local_mp", "--torch")

    assert "ok    pyspark's TorchDistributor trains the same model, to 1e-12" in printed


def test_a_cluster_is_told_to_all_when_the_last_node_has_registered() -> None:
    async def register() -> list[Any]:
        server = Reservations({"ps": 1, "worker": 2}, limit_s=60)
        first = [server.cluster(), server.register("worker", 1, "b"), server.register("ps", 0, "c")]
        waiting = [asyncio.ensure_future(each) for each in first]
        await asyncio.sleep(0)
        assert not any(each.done() for each in waiting)
        return [await server.register("worker", 0, "a"), *await asyncio.gather(*waiting)]

    assert asyncio.run(register()) == 4 * [{"ps": ["c"], "worker": ["a", "b"]}]


def test_a_reservation_that_is_not_complete_in_time_names_who_is_absent() -> None:
    server = Reservations({"ps": 1, "worker": 3}, limit_s=0.01)

    with pytest.raises(NotAllRegistered, match=r"^ps 0, worker 0, worker 2 have .* worker 1$"):
        asyncio.run(server.register("worker", 1, None))
    with pytest.raises(ValueError, match="worker 3 does not belong to ps 0, worker 0, worker 1"):
        asyncio.run(server.register("worker", 3, None))


def test_rows_that_come_again_are_in_no_batch() -> None:
    feed = DataFeed(Rows([0, 1, 2, 1, 2, 3, 4]), seen=[(0, 0, 0), (0, 0, 1)])

    batches = []
    while not feed.should_stop():
        batches.append([row.label for row in feed.next_batch(2)])

    assert batches == [[2], [3], [4], []]


def test_a_feed_that_is_terminated_gives_nothing_more() -> None:
    feed = DataFeed(Rows([0, 1, 2]))
    feed.next_batch(1)

    feed.terminate()

    assert feed.should_stop()
    assert feed.next_batch(1) == []


def test_each_row_of_a_batch_has_one_result() -> None:
    source = Rows([0, 1, 2])
    feed = DataFeed(source)

    feed.next_batch(2)
    feed.batch_results(["a", "b"])

    assert source.answers == [(0, "a"), (1, "b")]
    with pytest.raises(ValueError, match="1 results for a batch of 2 rows"):
        feed.batch_results(["c"])


def test_what_an_attempt_has_pushed_that_died_before_the_step_was_complete_is_pushed_again(
    tmp_path: Path,
) -> None:
    first, again, other = ([Row((0, 0, i), PARTITION.images[i], i)] for i in range(3))
    with lp.testing.worker("ps", state=tmp_path), ThreadPoolExecutor(2) as pool:
        server: Any = ParameterServer(ARGS, 2, None, None)  # type: ignore[arg-type]
        pushed = pool.submit(push, server, 0, first)
        until(lambda: 0 in server._state._given)

        assert server.begin(0) == []
        pushed_again = pool.submit(push, server, 0, again)
        parameters, n_rows = push(server, 1, other)

        assert pushed.result(60)[1] == pushed_again.result(60)[1] == n_rows == 2
        assert server.trained().ledger == [[[(0, 0, 1)], [(0, 0, 2)]]]
        assert server.begin(0) == [(0, 0, 1)]
    both = gradient(ARGS.widths, ARGS.parameters, [*again, *other])
    assert np.allclose(parameters, -ARGS.learning_rate * both / 2, rtol=0, atol=1e-15)


def push(server: ParameterServer, worker: int, rows: list[Row]) -> tuple[Any, int]:
    of_rows = gradient(ARGS.widths, ARGS.parameters, rows)
    return server.push(worker, 0, of_rows, [row.id for row in rows])


def trained(*ledger: Any) -> Ran:
    """What a cluster has returned whose model has these rows."""
    stats = lp.QueueStats(10, 10, 0, 0, 10, 0, 0, 0, 0, 64, (), False)
    workers = [Worked(ARGS.parameters, stats, None, list(ledger), 1)] * 2
    return Ran(JOB, workers, [])


def test_check_refuses_a_row_that_is_in_the_model_twice_and_one_that_is_missing() -> None:
    [first, second] = [[(0, partition, i) for i in range(5)] for partition in range(2)]
    claims.check_once(trained([first[:3], second], [first[3:], []]))

    with pytest.raises(ArithmeticError, match="10 of 10 rows"):
        claims.check_once(trained([first, second], [[], second[:1]]))
    with pytest.raises(ArithmeticError, match="9 of 10 rows"):
        claims.check_once(trained([first[1:], second]))


def test_checks_refuse_what_is_nearly_right() -> None:
    job = replace(JOB, partitions=[PARTITION[:4]] * 2)
    enough = replace(job, args=replace(ARGS, enough_at=3), epochs=100)
    killed, absent = replace(job, faults=Faults(kill_at=1)), replace(job, faults=Faults(absent=1))
    ledger = [[[(0, worker, i), (0, worker, i + 1)] for worker in range(2)] for i in (0, 2)]
    uneven = [[[(0, worker, i) for i in ids] for worker in range(2)] for ids in ((0, 1, 2), (3,))]
    of_id = claims.rows_of(job)
    alone = train_alone(ARGS, [[[of_id[id_] for id_ in ids] for ids in step] for step in ledger])
    queue = lp.QueueStats(5, 5, 0, 0, 4, 0, 1, 0, 0, 64, (), is_cancelled=True)
    nine_of_ten = Digits(np.zeros((10, 64)), np.array([0] * 9 + [1]))

    def ran(job: Job, attempts: Sequence[int] = (2, 2, 2), **changes: Any) -> Ran:
        stats = replace(queue, **changes)
        workers = [Worked(alone, stats, 1.0, ledger, attempt) for attempt in attempts[:2]]
        return Ran(job, workers, [Fed(1.5, {}, attempts[2])])

    def learned(parameters: Array, ledger: Ledger) -> Ran:
        worker = Worked(parameters, None, None, ledger, 1)
        return Ran(job, [worker] * 2, [])

    zeros, right = learned(ARGS.parameters, ledger), learned(alone, ledger)
    one_not_told = ran(enough, put=70)._replace(feeders=[Fed(1.5, {}, 1), Fed(None, {}, 1)])
    claims.check_once(ran(killed))
    claims.check_bounded(ran(job))
    claims.check_same_as_alone(right, "")
    claims.check_planned(right)
    claims.check_accuracy(zeros, nine_of_ten, "")
    claims.check_enough(ran(enough, put=70))
    claims.check_named(absent, "worker 1 has not registered within 3 s; registered: ps 0, worker 0")

    for check in (
        lambda: claims.check_once(ran(killed, (1, 2, 2))),
        lambda: claims.check_once(ran(killed, (2, 2, 1))),
        lambda: claims.check_once(ran(killed, redelivered=0)),
        lambda: claims.check_once(ran(killed, put=4)),
        lambda: claims.check_bounded(ran(job, most_waiting=65)),
        lambda: claims.check_bounded(ran(job, most_waiting=63)),
        lambda: claims.check_same_as_alone(learned(np.nextafter(alone, 1), ledger), ""),
        lambda: claims.check_same_as_alone(learned(alone, ledger[:1]), ""),
        lambda: claims.check_planned(learned(alone, ledger[::-1])),
        lambda: claims.check_planned(learned(alone, uneven)),
        lambda: claims.check_accuracy(zeros, replace(nine_of_ten, labels=np.arange(10) // 8), ""),
        lambda: claims.check_enough(ran(enough, put=71)),
        lambda: claims.check_enough(ran(enough, put=70, is_cancelled=False)),
        lambda: claims.check_enough(one_not_told),
        lambda: claims.check_named(absent, "nothing"),
        lambda: claims.check_named(
            absent, "worker 1 has not registered within 3 s; registered: ps 0"
        ),
        lambda: claims.check_named(
            absent, "worker 0 has not registered within 3 s; registered: ps 0, worker 1"
        ),
    ):
        with pytest.raises(ArithmeticError, match="it should hold that"):
            check()


def test_check_refuses_results_in_another_order_and_those_that_two_feeders_have() -> None:
    job = replace(JOB, main_fun=infer)
    results = {number: [(i, 0) for i in range(5)] for number in range(2)}
    claims.check_inferred(Ran(job, [], [Fed(None, results, 1)]))

    swapped = {**results, 1: [results[1][1], results[1][0], *results[1][2:]]}
    with pytest.raises(ArithmeticError, match="in the order of the partition's rows"):
        claims.check_inferred(Ran(job, [], [Fed(None, swapped, 1)]))
    with pytest.raises(ArithmeticError, match="15 results of 3 partitions"):
        claims.check_inferred(Ran(job, [], [Fed(None, results, 1), Fed(None, {1: results[1]}, 1)]))
